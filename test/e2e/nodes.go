package main

import (
	"fmt"
	"slices"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/client"
)

var nodeFlows = []flow{
	{
		name: "nodes-list", clause: "nodes: utilization, state with why, last contact, filter and chips", do: listNodes,
		alone: true,
	},
	{name: "node-drain", clause: "node: drain with a reason, and back, live on its page", do: drainNode},
	{name: "node-edit", clause: "node: capacity and name edited in place", do: editNode},
	{name: "node-join", clause: "empty states teach: the exact command that adds a node", do: joinNode},
	{name: "events", clause: "events: newest first, the filter, links to what they are about", do: showEvents},
}

// someNode returns the node that a look of a flow may change.
func (p *page) someNode() (api.Node, error) {
	list, err := p.api.Nodes(p, client.ListOptions{})
	if err == nil && len(list) != nodesOf {
		err = fmt.Errorf("%d nodes", len(list))
	}
	if err != nil {
		return api.Node{}, err
	}
	return list[slices.Index(looks, p.as)%nodesOf], nil
}

func listNodes(p *page) error {
	return steps(
		p.to("/nodes"), p.live(), p.see("3 nodes", "work-0001"), p.chip("Active", 3), p.there("meter"), p.picture("all"),
		p.click("a.chip"), p.holds(`location.search.includes("state%3Aactive")`), p.see("3 nodes that match"),
		p.to("/nodes?q=colour:red"), p.see("; the fields are"), p.to("/nodes?q=name:nobody"),
		p.see("No matching nodes"), p.picture("none"),
	)
}

func drainNode(p *page) error {
	n, err := p.someNode()
	if err != nil {
		return err
	}
	why := "why " + p.name()
	return steps(
		p.to("/nodes/"+n.NodeID), p.live(), p.see(n.NodeName, "Active", "Cached templates", "Vulnerabilities"),
		p.picture("active"),
		p.click(`a[href^="/nodes/drain"]`), p.there("dialog[open] form"),
		p.fill(`dialog[open] input[name="reason"]`, why), p.picture("asked"),
		p.click("dialog[open] .acts button"), p.see("Drain Mode", why), p.picture("drained"),
		p.click(`a[href^="/nodes/undrain"]`), p.there("dialog[open] form"), p.click("dialog[open] .acts button"),
		p.see("Active"), p.holds(`![...document.querySelectorAll(".strip")].some((e) => e.innerText.includes("why"))`),
		p.there(`a[href^="/nodes/drain"]`),
	)
}

func editNode(p *page) error {
	n, err := p.someNode()
	if err != nil {
		return err
	}
	return steps(
		p.to("/nodes/"+n.NodeID), p.live(), p.click(`a[href^="/nodes/`+n.NodeID+`/edit"]`),
		p.there("dialog[open] form"), p.picture("asked"),
		p.fill(`dialog[open] input[name="max_vm_count"]`, "17"), p.click("dialog[open] .acts button"), p.see("of 17"),
		func() error { return p.api.ConfigureNode(p, client.NodeConfig{NodeID: n.NodeID, MaxVMCount: 40}) },
		p.see("of 40"),
	)
}

func joinNode(p *page) error {
	return steps(p.to("/nodes/join"), p.see("buildnode join "+p.open.Controller), p.there("[data-command]"),
		p.picture("command"))
}

func showEvents(p *page) error {
	ids, err := p.start(p, p.name(), 1)
	if err != nil {
		return err
	}
	return steps(
		p.to("/events?q=instance:"+ids[0]), p.live(), p.there(`a[href="/instances/`+ids[0]+`"]`), p.picture("of-one"),
		p.to("/events?q=colour:red"), p.see("; the fields are"),
	)
}
