"""The training loop of one node (docs/ARCHITECTURE.md, "A step of the trainer")."""

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch

from daisychain import kernels, numerics
from daisychain.base.clock import Clock, SystemClock
from daisychain.base.errors import FleetError, ReplicaMismatchError
from daisychain.base.heap import give_back_free_memory
from daisychain.base.log import say
from daisychain.cluster import agreement, facts, records
from daisychain.cluster.aftermath import Ended, LastState, tell
from daisychain.cluster.config import Summary, TrainConfig
from daisychain.cluster.fleet import Fleet
from daisychain.cluster.fleet.links import Link
from daisychain.cluster.gradients import FlatGradient
from daisychain.cluster.looks import glimpse, metrics_of
from daisychain.cluster.plan import Planner, link_times_s
from daisychain.cluster.records import Fault, Record
from daisychain.cluster.replica import Array, Replica, merge_buffers
from daisychain.cluster.share import compute_share, sampler, slowdown
from daisychain.cluster.storage.checkpoint import Meta
from daisychain.cluster.storage.journal import Journal
from daisychain.cluster.storage.keeper import Keeper, LeadFolder
from daisychain.cluster.storage.progress import Report, StepReport, report_of, split_of
from daisychain.cluster.storage.restore import resume
from daisychain.cluster.storage.run_folder import RUNS, RunFolder
from daisychain.kernels import make_optimizer
from daisychain.numerics import Optimizer
from daisychain.tasks.attempt import attempt
from daisychain.tasks.check import build_model
from daisychain.tasks.task import SampleIds, Task
from daisychain.units.counts import counts


class Trainer:
    """Trains `task` on one node of a fleet; every node of it runs the same.

    `folder` (first node only) is where the run is kept, `resume_from` (first node only) the checkpoint where it goes
    on from. `options` are what config.json tells beside the task and `config`. In `runs` a survivor keeps the state
    when the first node's folder is not here. `stop` asks for an end after the step. `links` as measured, in roster
    order. `optimizer` makes one for a number of parameters. `journal` is where the run tells about itself, unless that
    is `folder` and `status_file` alone.
    """

    def __init__(
        self,
        task: Task,
        task_name: str,
        fleet: Fleet,
        config: TrainConfig,
        *,
        folder: RunFolder | None = None,
        runs: Path = RUNS,
        options: Mapping[str, Any] | None = None,
        resume_from: Path | None = None,
        device: torch.device | None = None,
        device_reason: str = "",
        stop: threading.Event | None = None,
        report: Report | None = None,
        status_file: Path | None = None,
        links: Sequence[Link] = (),
        optimizer: Callable[[str, int], Optimizer] = make_optimizer,
        clock: Clock | None = None,
        journal: Journal | None = None,
    ) -> None:
        self.task, self.task_name, self.fleet, self.config = task, task_name, fleet, config
        self.folder, self.resume_from = folder, resume_from
        self.options = options or {}
        self.device, self.device_reason = device or torch.device("cpu"), device_reason
        self.stop = stop or threading.Event()
        self.clock = clock or SystemClock()
        self.report = report
        self.journal = journal or Journal(folder.path if folder else None, status_file, self.clock)
        self.links = links
        self.make_optimizer = optimizer
        self.leads = fleet.rank == fleet.roster[0]
        self.slowdown = slowdown(os.environ)
        self.step = self.position = self._compared_step = 0
        self.keeper = Keeper(folder, runs)
        self._last_report: StepReport | None = None
        self._stop_asked = False  # on any node
        self._state_is_whole = False  # `before` and the optimiser belong to the same step
        self.streamed = bool(getattr(task, "streamed", False))
        self.sample = sampler(task, self.stop, self.clock)

    def run(self) -> Summary:
        """Train to the end. Raises a DaisyError with the last checkpoint intact: the same on every node, but where the
        first node's own disk refuses, which the others see as its loss.

        Before that the first node that is left saves the state before the step that failed; see `aftermath`.
        """
        self._join()
        give_back_free_memory()  # of the weights as they were built and sent
        self.before = self.replica.state()
        self._hashing = ThreadPoolExecutor(1, "state-hash")
        try:
            return self._train()
        except Exception as error:
            self._tell(error)
            raise
        finally:
            self.gradient.close()
            self._hashing.shutdown()

    def _join(self) -> None:
        setup: dict[str, Any] = {}
        lead: Mapping[str, Any] = {}
        fault = None
        try:
            agreement.check_subnormals()
            self.replica = Replica(build_model(self.task), self.device)
            self.optimizer = self.make_optimizer(self.config.optimizer, self.replica.flat.size)
            self.description = dict(attempt(self.task.description, "description() failed"))
            setup = agreement.setup_of(
                self.description, self.task.sample_count, self.task_name, self.config, self.replica
            )
            if self.leads:
                lead = self._lead(setup)
        except Exception as error:
            fault = Fault.of(error)
        own = facts.facts_of_this_node(self.fleet.rank, self.device, self.device_reason)
        hello = agreement.Hello(self.fleet.rank, setup, lead, fault, own)
        lead, nodes = agreement.exchange(self.fleet, hello)
        self.setup = setup
        self.step, self.position = lead["step"], lead["position"]
        self._lead_folder = LeadFolder(**lead["folder"]) if lead["folder"] else None
        if self.folder:
            config = {"task": self.task_name, **self.options, **asdict(self.config)}
            self.folder.begin(config, self.step)
            self.journal.begin(self.step, self.config.steps, facts.with_links(nodes, self.links), config)
        self._broadcast(lead["numbers"])
        self.planner = self._planner(lead["plan"])
        self.gradient = FlatGradient(self.replica, self.fleet)

    def _lead(self, setup: Mapping[str, Any]) -> dict[str, Any]:
        """What the first node decides: where the run begins, and where it is kept."""
        meta = Meta(self.task_name, {}, {}, 0, 0, numbers=self.optimizer.numbers())
        if self.resume_from:
            meta = resume(self.resume_from, setup, self.replica, self.optimizer)
            say(f"resuming from {self.resume_from}: step {meta.step}, {meta.position} samples used.")
        return {
            "step": meta.step,
            "position": meta.position,
            "plan": meta.plan,
            "numbers": meta.numbers,
            "folder": asdict(LeadFolder.of(self.folder)) if self.folder else None,
        }

    def _broadcast(self, numbers: Mapping[str, float]) -> None:
        source = self.fleet.roster[0]
        self.replica.broadcast(self.fleet, source)
        arrays = self.optimizer.arrays()
        for array in arrays.values():
            self.fleet.broadcast(torch.from_numpy(array), source)
        self.optimizer.load(arrays, dict(numbers))

    def _planner(self, plan: Mapping[str, Any]) -> Planner:
        """Batch normalisation cannot train on one sample, so with it a share has at least two."""
        norms = any(
            isinstance(m, torch.nn.modules.batchnorm._BatchNorm) for m in self.replica.model.modules()
        )
        planner = Planner(
            self.fleet.roster,
            self.config.batch_samples,
            fixed=self.config.plan == "equal",
            share_min_samples=min(2 if norms else 1, self.config.batch_samples),
            link_s=link_times_s(self.links, self.replica.flat.nbytes),
        )
        planner.load(plan)
        return planner

    def _train(self) -> Summary:
        counts.reset()
        self.replica.model.train()
        losses: list[float] = []
        self._first_step = self.step
        self._compute_s: list[float] = []  # of every node in the step before
        self._exchange_s: float | None = None  # of this node in the step before
        start_s = self.clock.now_s()
        while self.step < self.config.steps and not self._stop_asked:
            step_start_s = self.clock.now_s()
            shares = self.planner.next_shares()
            answers = self._one_step(shares)
            losses.append(records.mean_loss(answers))
            now_s = self.clock.now_s()
            self._report(answers, now_s - step_start_s, now_s - start_s)
            for note in self.planner.observe(shares, [record.compute_s for record in answers]):
                if self.leads:
                    say(f"step {self.step}: {note}")
                    self.journal.event("plan", self.step, note, shares=list(self.planner.shares))
        done_samples = len(losses) * self.config.batch_samples
        rate = done_samples / max(self.clock.now_s() - start_s, 1e-9)
        return self._finish(losses, rate, self.step < self.config.steps)

    def _one_step(self, shares: Sequence[int]) -> list[Record]:
        place = self.fleet.roster.index(self.fleet.rank)
        first = self.position + sum(shares[:place])
        places = np.arange(first, first + shares[place], dtype=np.int64)
        ids = (
            places if self.streamed else numerics.sample_ids(places, self.task.sample_count, self.config.seed)
        )
        self.before = self.replica.state()
        self._state_is_whole = True
        # The weights stand still until the optimiser runs, so they are hashed while the model computes.
        state_hash = self._hashing.submit(numerics.state_hash, self.before, self.step)
        self._seed_dropout()
        start_s = self.clock.now_s()
        try:
            answers = self._exchange(ids, state_hash)
            merged = self._merged_buffers(answers)
            count = records.check_count(answers)
        except BaseException:
            self.replica.load(self.before)  # the forward pass may have moved buffers
            raise
        self._exchange_s = self.clock.now_s() - start_s - answers[place].compute_s
        self._save_if_due()
        self._state_is_whole = False
        self._update(count, merged)
        return answers

    def _exchange(self, ids: SampleIds, state_hash: "Future[bytes]") -> list[Record]:
        """Compute this node's share and hear of all others'. Raises what ends the run on every node."""
        kernels.default(self.device.type).begin_step()
        share = compute_share(
            self.task, self.sample, self.replica, self.gradient, ids, self.clock, self.slowdown
        )
        record = Record(
            rank=self.fleet.rank,
            step=self.step,
            state_hash=state_hash.result().hex(),
            samples=share.samples,
            count=share.count,
            loss_sum=share.loss_sum,
            compute_s=share.compute_s,
            fault=share.fault,
            stop=self.stop.is_set(),
            buffers=self.replica.changed_buffers(self.before),
            units=counts.table(),
            exchange_s=self._exchange_s,
        )
        answers = records.decode_all(self.fleet.gather(record.encode()), self.step)
        self.gradient.wait()
        self._check(answers)
        self.gradient.check_sums()
        return answers

    def _seed_dropout(self) -> None:
        """What a step draws must not depend on what ran before, so that a resumed run draws the same."""
        number = ((self.config.seed * 1_000_003 + self.step) * 65_537 + self.fleet.rank) % (1 << 63)
        torch.default_generator.manual_seed(number)
        if self.device.type == "cuda":
            torch.cuda.manual_seed(number)

    def _check(self, answers: Sequence[Record]) -> None:
        """Everybody has the same answers, so all nodes raise the same, or none does."""
        reference, others = records.outvoted(answers)
        if others:
            raise ReplicaMismatchError(self._name_mismatch(reference, others))
        self._compared_step = self.step
        self._stop_asked |= any(record.stop for record in answers)
        records.check_faults(answers)

    def _name_mismatch(self, reference: int, others: Sequence[int]) -> str:
        digests = {name: numerics.tensor_digest(array).hex() for name, array in self.before.items()}
        try:
            answers = self.fleet.gather(records.encode_digests(digests))
            tables = dict(zip(self.fleet.roster, map(records.decode_digests, answers), strict=True))
            found = [
                f"node {rank} in {records.first_unequal(tables[reference], tables[rank])!r}"
                for rank in others
            ]
        except FleetError as error:  # the mismatch is the news, and no state to be saved
            found = [f"node {rank} in an unknown tensor ({error})" for rank in others]
        return (
            f"before step {self.step} the replicas are not the same any more: {', '.join(found)} differs from node "
            f"{reference}; look for faulty memory or a changed library there. The last checkpoint is intact."
        )

    def _merged_buffers(self, answers: Sequence[Record]) -> dict[str, Array]:
        changed = sorted({i for record in answers for i in record.buffers})
        if not changed:
            return {}
        names = [list(self.replica.buffers)[i] for i in changed]
        packed = self.fleet.gather(self.replica.pack(names))
        return merge_buffers(self.before, names, packed, [record.samples for record in answers])

    def _update(self, count: int, merged: Mapping[str, Array]) -> None:
        gradient = self.gradient.sums
        gradient /= np.float32(count)
        self.optimizer.step(self.replica.flat, gradient, self.config.rate(self.step))
        self.replica.load(merged)
        self.step += 1
        self.position += self.config.batch_samples

    def _report(self, answers: Sequence[Record], step_s: float, passed_s: float) -> None:
        done = self.step - self._first_step
        left_s = passed_s / done * (self.config.steps - self.step)
        split = split_of(self.step - 1, self._compute_s, [record.exchange_s for record in answers])
        self._compute_s = [record.compute_s for record in answers]
        report = report_of(answers, split, self.step, self.config.steps, step_s, left_s)
        self._last_report = report
        if self.leads:
            self.journal.step(report)
        if self.report:
            self.report(report)

    def _meta(self, metrics: Mapping[str, float]) -> Meta:
        return Meta(
            task=self.task_name,
            description=self.description,
            setup=self.setup,
            step=self.step,
            position=self.position,
            plan=self.planner.state(),
            metrics=metrics,
            numbers=self.optimizer.numbers(),
        )

    def _save_if_due(self) -> None:
        """The state before this step, which the gather has just shown to be the same on every node."""
        due = self.step % self.config.checkpoint_every_steps == 0 and self.step > self._first_step
        if due and self.leads:
            saved = self.keeper.save(self._meta({}), self.before, self.optimizer.arrays())
            if saved:
                self.journal.checkpoint(self.step, saved)
            self._glimpse()

    def _glimpse(self) -> None:
        seen = glimpse(self.task, self.replica, self.before)
        if seen:
            self.journal.event("glimpse", self.step, seen.text, metrics=dict(seen.metrics))

    def _tell(self, error: Exception) -> None:
        """Have the last good state saved, and the end told, by whichever node has to."""
        state = None
        if self._state_is_whole and self._last_report:
            row = asdict(self._last_report)
            buffers = self.replica.buffers
            state = LastState(self._meta({}), self.before, self.optimizer.arrays(), buffers, row)
        ended = Ended(error, self.fleet.rank, self.fleet.roster, self.step, self._compared_step, state)
        tell(ended, self.keeper, self.journal, self._lead_folder)

    def _finish(self, losses: Sequence[float], rate: float, stopped: bool) -> Summary:
        self.before = self.replica.state()
        self._state_is_whole = True
        last_hash = numerics.state_hash(self.before, self.step).hex()
        record = Record(self.fleet.rank, self.step, last_hash, units=counts.table())
        answers = records.decode_all(self.fleet.gather(record.encode()), self.step)
        self._check(answers)
        metrics: dict[str, float] = {}
        model = None
        if self.leads:
            self.keeper.save_last(self._meta({}), self.before, self.optimizer.arrays())
            if self.keeper.saved:
                self.journal.checkpoint(self.step, self.keeper.saved)
            if not stopped:
                model = self.keeper.save_model(self._meta({}), self.before)
                metrics = metrics_of(self.task, self.replica, self.before)
                self.keeper.save_model(self._meta(metrics), self.before)
                self._glimpse()
        hashes = tuple(answer.state_hash for answer in answers)
        summary = Summary(
            task=self.task_name,
            nodes=len(answers),
            steps=self.step,
            stopped=stopped,
            loss_first=losses[0],
            loss_last=losses[-1],
            samples_per_s=rate,
            shares=self.planner.shares,
            state_hashes=hashes,
            replica_diff=sum(h != hashes[0] for h in hashes),
            unit_invocations=records.merged_units(answers),
            metrics=metrics,
            checkpoint=self.keeper.saved,
            model=model,
        )
        if self.leads:
            self.journal.finished(summary)
        return summary
