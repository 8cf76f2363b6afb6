package main

import (
	"context"
	"fmt"

	"github.com/buildyard/buildyard/client"
)

// largeNodes and largeInstances are the size of the large cloud.
const (
	largeNodes     = 1000
	largeInstances = 20_000
)

var largeFlows = []flow{{
	name: "large", clause: "1,000 nodes and 20,000 instances: lists, search, prefetch and numbers stay usable",
	do: useLarge, before: fillLarge, alone: true,
}}

func fillLarge(ctx context.Context, s *stage) (err error) {
	if s.large, err = s.special(ctx, "large", largeNodes, "--capacity", "24"); err != nil {
		return err
	}
	return s.large.run(ctx, s, largeInstances)
}

// bounded is true while a page has a number of elements that a browser lays out quickly.
const bounded = `document.querySelectorAll("*").length < 6000`

func useLarge(p *page) error {
	if p.large == nil {
		return fmt.Errorf("the large cloud was not started")
	}
	name := p.name()
	ids, err := p.large.api.Start(p, client.StartRequest{TemplateID: p.large.template, Name: name})
	if err != nil {
		return err
	}
	return steps(
		p.toCloud(p.large, "/"), p.live(), p.see("20\u202f0", "Active nodes"), p.holds(bounded), p.picture("dashboard"),
		p.toCloud(p.large, "/instances"), p.live(), p.see("1 to 50 of 20"), p.holds(bounded), p.picture("instances"),
		p.fill("#q", "name:"+name), p.keys("\r"), p.there("#i-"+ids[0]), p.see("1 instance that match"),
		p.toCloud(p.large, "/search?q="+name), p.there(`a[href="/instances/`+ids[0]+`"]`),
		p.toCloud(p.large, "/nodes"), p.live(), p.see("1\u202f000 nodes"), p.holds(bounded), p.picture("nodes"),
		p.fill("#q", "name:mac-0777"), p.keys("\r"), p.see("1 node that match"),
		p.toCloud(p.large, "/templates/"+p.large.template+"/distribute"), p.there("main form"),
		p.holds(`document.querySelectorAll("main form input[type=checkbox]").length < 60`), p.see("1\u202f000"),
		p.holds(bounded), p.picture("prefetch"),
		p.toCloud(p.large, "/instances/start"), p.there("main form"), p.holds(bounded), p.picture("start"),
		p.toCloud(p.large, "/health"), p.holds(bounded),
		func() error { return p.large.api.Terminate(p, ids[0]) },
	)
}
