// Package buildnode is the program of a node's owner: it joins and leaves a cloud, runs the agent, shows
// its status, and transfers templates between this host and a registry.
//
// It contains no domain logic: a command is an Options struct, a constructor that only parses, and a
// run that calls packages below internal/agent.
//
// Invariant: the result goes to standard output and everything else to standard error; no key,
// token or credential is printed or read from the environment.
package buildnode
