// Package buildnode is the node owner's program: joining and leaving a cloud, the
// agent, local templates, the registry's client, and simulated nodes.
//
// It is not the agent (internal/agent) and holds no logic of it: a command here is
// an options struct, a constructor that only parses, and a run.
//
// Invariant: what a command needs comes from its options and the data directory;
// keys and groups are never taken from the environment.
package buildnode
