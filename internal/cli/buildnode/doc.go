package buildnode
