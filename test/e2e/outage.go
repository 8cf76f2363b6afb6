package main

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// outageNodes and outageInstances are what is lost.
const (
	outageNodes     = 30
	outageInstances = 40
	outageTime      = 4 * time.Minute // until the controller has given up the nodes
)

var outageFlows = []flow{{
	name: "outage", clause: "outage of all nodes: its cause, spread and deadline on every page, one card in Health",
	do: seeOutage, prepare: beginOutage, before: awaitOutage,
}}

// beginOutage ends the fleet of a cloud with running instances. Its nodes are Offline some minutes later.
func beginOutage(ctx context.Context, s *stage) (err error) {
	if s.outage, err = s.special(ctx, "outage", outageNodes, "--capacity", "2"); err != nil {
		return err
	}
	if err := s.outage.run(ctx, s, outageInstances); err != nil {
		return err
	}
	return s.outage.fleet.Kill()
}

func awaitOutage(ctx context.Context, s *stage) error {
	for end := time.Now().Add(outageTime); ; time.Sleep(time.Second) {
		stats, err := s.outage.api.Stats(ctx)
		if err == nil && stats.Nodes["Offline"] == outageNodes {
			return nil
		}
		if ctx.Err() != nil || time.Now().After(end) {
			return errors.Join(fmt.Errorf("%d nodes are Offline, want %d", stats.Nodes["Offline"], outageNodes), err)
		}
	}
}

func seeOutage(p *page) error {
	what := fmt.Sprintf("%d nodes", outageNodes)
	banner := func(path string) func() error {
		return func() error {
			return steps(p.toCloud(p.outage, path), p.there("#trouble, #outage"), p.see(what))
		}
	}
	return steps(
		p.toCloud(p.outage, "/"), p.live(), p.there("#outage"),
		p.see(what, "buildnode status", "buildyard maintenance on", "Running VMs keep running", "within"), p.gone("No problems"),
		p.holds(`document.querySelectorAll("#outage").length === 1`),
		p.holds(`[...document.querySelectorAll(".badge")].some((b) => b.textContent.trim() !== "")`), p.picture("dashboard"),
		banner("/instances"), p.picture("instances"), banner("/nodes"), p.chip("Offline", outageNodes), p.picture("nodes"),
		banner("/templates"), banner("/events"),
		p.toCloud(p.outage, "/health"), p.live(), p.see(what, "problem"), p.gone("no problems"),
		// One card for the cause, not one for each node.
		p.holds(`[...document.querySelectorAll("main section.problem")]
			.filter((card) => card.textContent.includes("Offline")).length === 1`), p.picture("health"),
		p.click(`main a[href*="/nodes"]`), p.holds(`location.pathname === "/nodes"`), p.see("Offline"),
	)
}
