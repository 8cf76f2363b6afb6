package main

// families are all attacks, in the order in which they are made.
var families = []family{
	defaults, damage, disks, hostileNode, lyingNode, hostilePusher, hostileCaller, slowCallers, guesses, pages,
	openPages,
}
