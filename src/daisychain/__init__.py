"""DaisyChain: pool the computers you own to train one small model."""
