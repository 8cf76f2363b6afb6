package main

import "slices"

// flow is something that people do with the portal.
type flow struct {
	name   string
	clause string // what it is about
	do     func(p *page) error
}

// flows is the list of what has to work.
func flows() []flow {
	return slices.Concat(dashboardFlows, instanceFlows, nodeFlows, templateFlows, pageFlows)
}
