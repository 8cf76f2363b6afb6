package main

import "context"

// scene is a case that needs more than requests: programs that are started, killed or given
// wrong settings, and what lies on disks.
type scene struct {
	name  string
	alone bool     // it changes what others need
	rows  []string // claimed when it went well
	play  func(ctx context.Context, p *player) error
}

// scenes in the order in which they begin: those that take longest first.
var scenes = []scene{}
