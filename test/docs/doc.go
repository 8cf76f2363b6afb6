// Command docs checks that the documents can be followed. It runs every sh block of README.md,
// CONTRIBUTING.md and the pages of docs/ (decisions and reference aside), the blocks of a page in
// order in one bash. It also checks that every relative link and anchor of all Markdown files exists,
// and that sh blocks fit into 120 columns.
//
// As root on Linux each page has a network, process and mount namespace, so that default ports,
// default directories and changes below /etc, /usr/local and /var stay in it. Elsewhere pages share
// the machine and run one after the other. Only loopback addresses are reached.
//
// Comments in a page control the run:
//
//	<!-- docs-test: skip REASON -->      the next block is not run
//	<!-- docs-test: output REGEXP -->    a line of the output of the next block must match
//	<!-- docs-test: setup                shell lines that run at this point, and are not shown
//	...
//	-->
//
// A page starts in an empty directory, with HOME next to it and the programs in PATH. REPO is the
// root of the repository. The function start_cloud (prelude.sh) starts a controller with a registry,
// a node with simulated VMs and a template base:v1.
//
// Invariant: everything that a page started has ended when the next page begins.
package main
