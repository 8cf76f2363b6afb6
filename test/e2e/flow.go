package main

import (
	"context"
	"slices"
)

// flow is something that people do with the portal.
type flow struct {
	name   string
	clause string // what it is about
	do     func(p *page) error
	alone  bool // it is about all of a cloud: its looks cannot be at the same time
	// prepare begins what it needs in addition, before the first flow, and before ends that, just before it. nil: nothing.
	prepare, before func(ctx context.Context, s *stage) error
}

// flows is the list of what has to work.
func flows() []flow {
	return slices.Concat(
		dashboardFlows, instanceFlows, startFlows, nodeFlows, templateFlows, groupFlows, poolFlows, logFlows, careFlows,
		accessFlows, mannerFlows, pageFlows, consoleFlows, breakFlows, truthFlows,
		outageFlows, largeFlows, listFlows, slotFlows, firstFlows,
	)
}
