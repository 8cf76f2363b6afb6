// Package buildnode is the program of a node's owner: join a cloud and leave it, run
// the agent, look at it, and carry templates between this host and a registry.
//
// It holds no logic of its own: a command is an Options struct, a constructor that
// only parses, and a run that calls packages below internal/agent.
//
// Invariant: the answer goes to standard output and everything else to standard
// error; no key, token or credential is printed or read from the environment.
package buildnode
