package main

import (
	"fmt"
	"slices"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/client"
)

var careFlows = []flow{
	{
		name: "health", clause: "health: the license, what is wrong and what to do, as it happens", do: lookAtHealth,
		alone: true,
	},
	{
		name: "nodes-bulk", clause: "nodes: drain, undrain, force update and delete, with a result per node",
		do: changeNodes, alone: true,
	},
	{name: "nodes-in-place", clause: "nodes: capacity set in its row, without leaving the list", do: setInPlace},
	{name: "node-detail", clause: "node: instances, templates held, disk, USB, events, agent version", do: showNode},
	{
		name: "template-cancel", clause: "template: a distribution to chosen nodes, followed and canceled",
		do: cancelDistribution, alone: true,
	},
	{
		name: "template-delete", clause: "template: revert and delete, with what goes, and what is left",
		do: deleteTemplate,
	},
}

func lookAtHealth(p *page) error {
	return steps(
		p.toLab("/health"), p.live(), p.see("License", "Running at", "Version"), p.picture("well"),
		func() error { _, err := p.lab.api.BeginMaintenance(p, api.BeginMaintenance{}); return err },
		p.reload, p.see("problem", "Maintenance mode is on", "End it after the work"), p.picture("trouble"),
		func() error { return p.lab.api.EndMaintenance(p) }, p.reload, p.gone("Maintenance mode is on"),
	)
}

// spare is the node that the look may do everything with.
func (p *page) spare() (n api.Node, err error) {
	name := fmt.Sprintf("spare-%04d", 1+slices.Index(looks, p.as))
	list, err := p.lab.api.Nodes(p, client.ListOptions{Filter: "name:" + name})
	if err == nil && len(list) != 1 {
		err = fmt.Errorf("%d nodes are called %s", len(list), name)
	}
	if err != nil {
		return n, err
	}
	return list[0], nil
}

func changeNodes(p *page) error {
	n, err := p.spare()
	if err != nil {
		return err
	}
	list, err := p.lab.api.Nodes(p, client.ListOptions{Filter: "name:slow-0001"})
	if err != nil || len(list) != 1 {
		return fmt.Errorf("%d nodes: %w", len(list), err)
	}
	choose := func() error {
		return steps(p.toLab("/nodes?q=name:"+n.NodeName+",slow-0001"), p.live(), p.click("#c-"+n.NodeID),
			p.click("#c-"+list[0].NodeID), p.see("2 selected"))
	}
	back := p.click(`header.top a.btn[href^="/nodes"]`)
	return steps(
		choose, p.picture("chosen"), p.click(`.bulk button[formaction="/nodes/drain"]`), p.there("dialog[open] form"),
		p.see("Drain 2 nodes", n.NodeName), p.fill("dialog[open] #reason", "an e2e"), p.picture("drain"),
		p.click("dialog[open] .acts button"), p.see("2 done", "Drain started"), p.picture("results"), back,
		p.see("Drain Mode", "an e2e"), p.picture("drained"),
		choose, p.click(`.bulk button[formaction="/nodes/undrain"]`), p.there("dialog[open] form"),
		p.click("dialog[open] .acts button"), p.see("2 done"), back, p.gone("an e2e"),
		choose, p.click(`.bulk button[formaction="/nodes/update"]`), p.there("dialog[open] form"),
		p.see("Each agent is updated"), p.refusal(409), p.click("dialog[open] .acts button"),
		p.see("2 failed of 2", "package"), p.picture("no-package"),
		p.toLab("/nodes/"+n.NodeID), p.live(), p.click(`.head a.btn.d`), p.there("dialog[open] form"),
		p.see("removed from the cloud"), p.picture("delete"), p.click("dialog[open] button.d"), p.at("/nodes"),
		p.see("nodes"),
		func() error {
			_, err := p.lab.api.Node(p, n.NodeID)
			if client.CodeOf(err) != client.ErrNotFound {
				return fmt.Errorf("the node is still there: %w", err)
			}
			return nil
		},
	)
}

func setInPlace(p *page) error {
	n, err := p.someNode()
	if err != nil {
		return err
	}
	field := "#n-" + n.NodeID + ` input[name="max_vm_count"]`
	return steps(
		p.to("/nodes?q=name:work*"), p.live(), p.fill(field, "13"), p.picture("typed"), p.keys("\r"), p.see("Saved"),
		p.hold("the capacity", func() (bool, error) {
			n, err := p.api.Node(p, n.NodeID)
			return n.Capacity == 13,
				err
		}),
		p.at("/nodes?q=name:work*"), p.holds(fmt.Sprintf(`document.querySelector(%q).value === "13"`, field)),
		p.picture("saved"),
		func() error { return p.api.ConfigureNode(p, client.NodeConfig{NodeID: n.NodeID, MaxVMCount: 40}) },
		p.holds(fmt.Sprintf(`document.querySelector(%q).value === "40"`, field)),
	)
}

func showNode(p *page) error {
	n, err := p.someNode()
	if err != nil {
		return err
	}
	ids, err := p.api.Start(p, client.StartRequest{TemplateID: p.template, Name: p.name(), NodeID: n.NodeID})
	if err != nil {
		return err
	}
	return steps(
		p.to("/nodes/"+n.NodeID), p.live(), p.there("#i-"+ids[0]), p.see(p.name(), "Cached templates", "guest", "v1",
			"Disk", "Agent", "USB devices", "phone", "free", "Events", "last contact"),
		p.holds(`/\d+ m?s ago/.test(document.querySelector("main").innerText)`), p.there("table.events tbody tr"),
		p.picture("node"),
		p.script(`document.querySelector("table.events").scrollIntoView()`), p.picture("events"),
	)
}

func cancelDistribution(p *page) error {
	return steps(
		p.toLab("/templates/"+p.lab.template), p.live(), p.click(`.head a[href$="/distribute"]`),
		p.there("dialog[open] form"),
		p.click(`dialog[open] input[value="filter"]`), p.fill(`dialog[open] input[name="filter"]`, "name:slow*"),
		p.picture("asked"), p.click("dialog[open] .acts button"),
		p.holds(`/distributions/.test(location.pathname)`), p.see("of 2 nodes", "slow-0001", "slow-0002", "0 %"),
		p.live(), p.picture("goes-on"),
		p.click(`a.btn.d`), p.there("dialog[open] form"), p.see("2 nodes stop pulling"),
		p.click("dialog[open] button.d"), p.holds(`!document.querySelector('a.btn.d')`), p.picture("cancelled"),
	)
}

func deleteTemplate(p *page) error {
	name := p.name()
	id, err := p.lab.push(p, name, "v1", "v2", "v3")
	if err != nil {
		return err
	}
	return steps(
		p.toLab("/templates?q=name:"+name), p.see(name, "v3"), p.click(`a[href="/templates/`+id+`"]`),
		p.see("3 tags", "v1", "v2", "v3", "Increment"), p.live(), p.picture("three"),
		p.click(`a[href$="/revert?tag=v2"]`), p.there("dialog[open] form"), p.see("v2", "v3", "becomes the latest tag",
			"Space to be freed"), p.picture("revert"), p.click("dialog[open] button.d"), p.see("1 tag"), p.gone("v3"),
		p.click(`.head a[href$="/delete"]`), p.there("dialog[open] form"), p.see("This cannot be undone"),
		p.picture("delete"),
		p.script(`const t = document.querySelector("dialog[open] #typed"); if (t) t.value = "`+name+`"`),
		p.click("dialog[open] button.d"), p.at("/templates"), p.gone(name),
	)
}
