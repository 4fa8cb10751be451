/** Meshes of several devices on fake connections: who offers, what heals, what is said, what is freed. */

import assert from "node:assert/strict";
import test from "node:test";
import {
  ABSENT_PATIENCE_MS,
  ICE_RESTARTS,
  LINK_DEADLINE_MS,
  LINK_RETRY_MS,
  LINK_SOUND_MS,
} from "../../../src/daisychain/static/limits.js";
import { Mesh } from "../../../src/daisychain/static/mesh/mesh.js";
import { FakeClock, FakeHub, FakeNetwork, settle } from "./mesh_help.js";

class World {
  clock = new FakeClock();
  network = new FakeNetwork();
  hub = new FakeHub();

  /** @param {string} id */
  join(id) {
    const signalling = this.hub.signalling(id);
    /** @type {[string, string, string][]} */
    const links = [];
    /** @type {[string, number][]} */
    const received = [];
    const mesh = new Mesh({
      signalling: /** @type {any} */ (signalling),
      connect: this.network.connect,
      clock: this.clock,
      onMessage: (from, message) => received.push([from, message.byteLength]),
      onLink: (other, state, reason) => links.push([other, state, reason]),
    });
    this.hub.enter(signalling);
    return { id, signalling, mesh, links, received, last: () => links.at(-1) };
  }
}

/** @typedef {ReturnType<World["join"]>} Device */

/** @param {Device} device */
function upTo(device) {
  return device.mesh
    .links()
    .filter(({ state }) => state === "up")
    .map(({ id }) => id)
    .sort();
}

/** @param {string[]} ids */
async function meshOf(...ids) {
  const world = new World();
  const devices = ids.map((id) => world.join(id));
  await settle();
  return { world, devices, first: devices[0], second: devices[1] };
}

test("every device links to every other with one connection each, whoever joins first", async () => {
  for (const ids of [
    ["a", "b", "c", "d"],
    ["d", "c", "b", "a"],
  ]) {
    const { world, devices } = await meshOf(...ids);
    for (const device of devices) assert.deepEqual(upTo(device), ids.filter((id) => id !== device.id).sort());
    assert.equal(world.network.connections.length, 12, "two ends of six links, made once");
    assert.equal(devices[0].mesh.links()[0].path, "host");
    assert.equal(world.clock.pending, 0, "nothing waits for a timer");
  }
});

test("messages go both ways, small ones past a long one", async () => {
  const { first, second } = await meshOf("a", "b");
  assert.equal(first.mesh.send("b", new Uint8Array(3_000_000)), true);
  assert.equal(first.mesh.send("b", new Uint8Array(10)), true);
  assert.equal(second.mesh.send("a", new Uint8Array(0)), true);
  await settle();
  assert.deepEqual(second.received.map(([, bytes]) => bytes).sort(), [10, 3_000_000]);
  assert.deepEqual(first.received, [["b", 0]]);
  assert.ok(first.mesh.links()[0].sentBytes > 3_000_000);
  assert.equal(first.mesh.links()[0].sentBytes, second.mesh.links()[0].receivedBytes);
});

test("there is no sending without a link, nor past what may wait", async () => {
  const { world, first } = await meshOf("a", "b");
  assert.equal(first.mesh.send("nobody", new Uint8Array(1)), false);
  for (const channel of world.network.connections[0].channels) channel.other = null;
  const megabytes = new Uint8Array(60_000_000);
  assert.deepEqual(
    [1, 2, 3].map(() => first.mesh.send("b", megabytes)),
    [true, true, false],
  );
});

test("an interrupted path is repaired by an ICE restart, also when both sides begin one", async () => {
  const { world, first, second } = await meshOf("a", "b");
  const ends = [...world.network.connections];
  for (const end of ends) end.become("failed");
  assert.deepEqual(first.last()?.slice(0, 2), ["b", "trouble"]);
  await settle();
  assert.deepEqual(
    ends.map(({ restarts }) => restarts),
    [1, 1],
  );
  assert.ok(
    ends.every(({ signalingState }) => signalingState === "stable"),
    "the glare is resolved",
  );
  assert.equal(ends[0].rollbacks + ends[1].rollbacks, 1, "one side gives way");
  assert.deepEqual([...upTo(first), ...upTo(second)], ["b", "a"]);
  assert.equal(world.network.connections.length, 2, "the connection is the same");
});

test("a short interruption is sat out", async () => {
  const { world, first } = await meshOf("a", "b");
  const [end] = world.network.connections;
  end.become("disconnected");
  assert.equal(first.last()?.[1], "trouble");
  assert.equal(first.mesh.send("b", new Uint8Array(5)), true, "messages wait or go");
  end.become("connected");
  assert.equal(first.last()?.[1], "up");
  await world.clock.pass(60_000);
  assert.equal(end.restarts, 0);
});

test("restarts that find nothing end in a new link", async () => {
  const { world, first, second } = await meshOf("a", "b");
  await world.clock.pass(LINK_SOUND_MS);
  world.network.open = false;
  const [end] = world.network.connections;
  end.become("failed");
  await world.clock.pass(LINK_DEADLINE_MS + 1);
  assert.equal(end.restarts, ICE_RESTARTS);
  assert.match(first.links.map(([, , reason]) => reason).join("\n"), /3 restarts found no other/);
  world.network.open = true;
  await world.clock.pass(2 * LINK_DEADLINE_MS + LINK_RETRY_MS[1]);
  assert.deepEqual([...upTo(first), ...upTo(second)], ["b", "a"]);
});

test("a link that cannot be made says why in words, and is tried again and again", async () => {
  const world = new World();
  world.network.open = false;
  const [first, second] = [world.join("a"), world.join("b")];
  await world.clock.pass(LINK_DEADLINE_MS);
  assert.deepEqual(first.last()?.slice(0, 2), ["b", "down"]);
  assert.match(first.last()?.[2] ?? "", /no path found.*--turn/);
  assert.match(second.last()?.[2] ?? "", /no path found.*--turn/);
  await world.clock.pass(10 * 60_000);
  const tries = world.network.connections.length / 2;
  assert.ok(tries > 10 && tries < 40, `${tries} tries in ten minutes`);
  assert.ok(world.network.alive.length <= 2);
  world.network.open = true;
  await world.clock.pass(60_000);
  assert.deepEqual([...upTo(first), ...upTo(second)], ["b", "a"]);
});

test("a device that does not answer is named so", async () => {
  const world = new World();
  world.hub.lost = () => true;
  const [first, second] = [world.join("a"), world.join("b")];
  await world.clock.pass(LINK_DEADLINE_MS + LINK_RETRY_MS[0]);
  assert.match(first.last()?.[2] ?? "", /does not answer/);
  assert.match(second.last()?.[2] ?? "", /does not begin a link/);
  world.hub.lost = () => false;
  await world.clock.pass(60_000);
  assert.deepEqual([...upTo(first), ...upTo(second)], ["b", "a"]);
});

test("a browser that makes no more connections is a reason, not a crash", async () => {
  const world = new World();
  const { connect } = world.network;
  world.network.connect = () => {
    throw new Error("Cannot create so many PeerConnections");
  };
  const first = world.join("a");
  world.network.connect = connect;
  const second = world.join("b");
  await settle();
  assert.match(first.last()?.[2] ?? "", /this browser makes no connection.*so many/);
  assert.equal(second.last(), undefined);
});

for (const [breaker, other] of [
  ["a", "b"],
  ["b", "a"],
]) {
  test(`an edge broken by ${breaker} stays broken until released, then heals`, async () => {
    const { world, devices } = await meshOf("a", "b", "c");
    const one = /** @type {Device} */ (devices.find(({ id }) => id === breaker));
    const two = /** @type {Device} */ (devices.find(({ id }) => id === other));
    one.mesh.faults.breakLink(other);
    await world.clock.pass(120_000);
    assert.deepEqual([upTo(one), upTo(two)], [["c"], ["c"]]);
    one.mesh.faults.releaseLink(other);
    await world.clock.pass(60_000);
    assert.deepEqual([upTo(one), upTo(two)], [[other, "c"].sort(), [breaker, "c"].sort()]);
  });
}

test("a message can be lost on purpose, once", async () => {
  const { first, second } = await meshOf("a", "b");
  first.mesh.faults.dropNext("b");
  assert.equal(first.mesh.send("b", new Uint8Array(1)), true);
  assert.equal(first.mesh.send("b", new Uint8Array(2)), true);
  await settle();
  assert.deepEqual(second.received, [["a", 2]]);
});

test("a closed page is noticed at once, and its link is not tried again", async () => {
  const { world, first, second } = await meshOf("a", "b");
  second.mesh.close();
  world.hub.leave(second.signalling);
  await settle();
  assert.equal(first.last()?.[1], "down");
  assert.deepEqual(first.mesh.links(), []);
  assert.equal(world.network.alive.length, 0);
  assert.equal(world.clock.pending, 0);
  assert.equal(second.signalling.listening, 0);
});

test("a page that vanished without a word is given up when it stays silent", async () => {
  const { world, first, second } = await meshOf("a", "b");
  world.hub.leave(second.signalling);
  await world.clock.pass(ABSENT_PATIENCE_MS);
  assert.deepEqual(first.mesh.links(), []);
  assert.deepEqual(first.last(), ["b", "down", "the device has left"]);
});

test("a link that works outlives the other's line to the server", async () => {
  const { world, first, second } = await meshOf("a", "b");
  world.hub.leave(second.signalling);
  for (let turn = 0; turn < 10; turn++) {
    second.mesh.send("a", new Uint8Array(100));
    await world.clock.pass(ABSENT_PATIENCE_MS - 1);
  }
  assert.deepEqual(upTo(first), ["b"]);
  world.hub.enter(second.signalling);
  await world.clock.pass(10 * ABSENT_PATIENCE_MS);
  assert.deepEqual([...upTo(first), ...upTo(second)], ["b", "a"]);
  assert.equal(world.network.connections.length, 2, "the connection is the same");
});

test("a server that began anew costs no link that works", async () => {
  const { world, first, second } = await meshOf("a", "b");
  world.hub = new FakeHub();
  for (const { signalling } of [first, second]) {
    signalling.hub = world.hub;
    world.hub.enter(signalling);
  }
  await world.clock.pass(10 * ABSENT_PATIENCE_MS);
  assert.equal(world.network.connections.length, 2);
  assert.deepEqual([...upTo(first), ...upTo(second)], ["b", "a"]);
});

test("a new id in the welcome begins with new links", async () => {
  const { world, first, second } = await meshOf("b", "c");
  world.hub.leave(first.signalling);
  first.signalling.id = "z";
  world.hub.enter(first.signalling);
  await settle();
  assert.deepEqual([...upTo(first), ...upTo(second)], ["c", "z"]);
});

test("frames that are none end the link with a reason, and a new one is made", async () => {
  const { world, first, second } = await meshOf("a", "b");
  const [end] = world.network.connections;
  end.channels[1].onmessage({ data: new ArrayBuffer(3) });
  assert.match(first.last()?.[2] ?? "", /no frame of ours.*3 bytes/);
  await world.clock.pass(LINK_RETRY_MS[0]);
  assert.deepEqual([...upTo(first), ...upTo(second)], ["b", "a"]);
});

for (const at of [0, 1]) {
  test(`a link that only device ${at} has lost is made anew`, async () => {
    const { world, devices, first, second } = await meshOf("a", "b");
    world.network.tellsOfClosing = false;
    const { connections } = world.network;
    const lost = connections.find(
      ({ localDescription }) => (localDescription.type === "offer") === (at === 0),
    );
    lost?.channels[0].onmessage({ data: new ArrayBuffer(3) });
    assert.deepEqual(devices.map(upTo), at === 0 ? [[], ["a"]] : [["b"], []]);
    await world.clock.pass(LINK_RETRY_MS[0]);
    assert.deepEqual([...upTo(first), ...upTo(second)], ["b", "a"]);
    assert.equal(connections.length, 4);
    assert.equal(world.network.alive.length, 2);
  });
}

test("a mesh that closes while its links are being made keeps nothing", () => {
  const world = new World();
  const devices = ["a", "b", "c"].map((id) => world.join(id));
  for (const { mesh } of devices) mesh.close();
  assert.equal(world.network.alive.length, 0);
  assert.equal(world.clock.pending, 0);
});

test("text on a channel and signals that are none of ours harm nothing", async () => {
  const { world, first, second } = await meshOf("a", "b");
  for (const data of [
    null,
    7,
    [],
    {},
    { link: 1 },
    { link: -1, candidate: {} },
    { link: 1, candidate: { candidate: 5 } },
  ]) {
    second.signalling.signal("a", data);
  }
  second.signalling.signal("a", { link: 1, description: { type: "rollback", sdp: "" } });
  second.signalling.signal("a", { link: 99, description: { type: "answer", sdp: "x" } });
  first.signalling.say("signal", { from: "stranger", data: { again: 0 } });
  await settle();
  assert.deepEqual(upTo(first), ["b"]);
  assert.equal(world.network.connections.length, 2);
  world.network.connections[0].channels[0].onmessage({ data: "text" });
  assert.equal(first.last()?.[1], "down");
});

test("600 reconnects leave nothing behind", async () => {
  const world = new World();
  const first = world.join("m");
  for (let turn = 0; turn < 600; turn++) {
    const device = world.join(turn % 2 ? `a${turn}` : `z${turn}`);
    await settle();
    assert.equal(upTo(first).length, 1, `turn ${turn}`);
    device.mesh.close();
    world.hub.leave(device.signalling);
    await settle();
  }
  assert.deepEqual(first.mesh.links(), []);
  assert.equal(world.network.alive.length, 0);
  assert.equal(world.clock.pending, 0);
  const kept = world.network.connections.filter(
    ({ onconnectionstatechange, onicecandidate, channels }) =>
      onconnectionstatechange ||
      onicecandidate ||
      channels.some(({ onmessage, onclose }) => onmessage || onclose),
  );
  assert.equal(kept.length, 0, "a closed connection still holds its link");
});
