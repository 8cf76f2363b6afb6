package main

import (
	"fmt"

	"github.com/buildyard/buildyard/client"
)

var groupFlows = []flow{
	{name: "groups", clause: "groups: made, renamed, given nodes and a fallback, deleted", do: useGroups, alone: true},
}

func useGroups(p *page) error {
	name, other, n := p.name(), p.name()+"-other", len(p.as.String())
	node, err := p.someNode()
	if err != nil {
		return err
	}
	id := ""
	learn := func() error {
		all, err := p.api.Groups(p, client.ListOptions{})
		for _, g := range all {
			if g.Name == name {
				id = g.ID
			}
		}
		if err == nil && id == "" {
			err = fmt.Errorf("there is no group %s", name)
		}
		return err
	}
	later := func(step func(id string) func() error) func() error { return func() error { return step(id)() } }
	return steps(
		p.to("/groups"), p.live(), p.click(`a[href="/groups/new"]`), p.there("dialog[open] form"), p.picture("asked"),
		p.fill("dialog[open] #name", name), p.fill("dialog[open] #description", fmt.Sprint("of look ", n)),
		p.click("dialog[open] .acts button"), p.see(name), learn,
		p.holds(`location.search.includes("q=id")`), p.to("/groups"), p.live(),
		func() error { _, err := p.api.CreateGroup(p, client.GroupRequest{Name: other}); return err }, p.see(other),
		later(func(id string) func() error { return p.click(`a[href="/groups/` + id + `/edit"]`) }),
		p.there("dialog[open] form"), p.fill("dialog[open] #name", name+"-new"),
		later(func(string) func() error {
			return p.script(
				`document.querySelector("dialog[open] #fallback").selectedIndex = [...document.querySelectorAll("dialog[open] #fallback option")].findIndex(o => o.textContent === "` + other + `")`)
		}),
		p.click("dialog[open] .acts button"), p.closed, p.see(name+"-new"), later(func(id string) func() error {
			return p.holds(`document.getElementById("g-` + id + `").innerText.includes("` + other + `")`)
		}),
		p.to("/nodes/"+node.NodeID), p.click(`a[href="/nodes/`+node.NodeID+`/groups"]`), p.there("dialog[open] form"),
		later(func(id string) func() error { return p.click(`dialog[open] input[value="` + id + `"]`) }),
		p.click("dialog[open] .acts button"), p.closed, p.see(name+"-new"),
		p.to("/groups"), later(func(id string) func() error {
			return p.there(`#g-` + id + ` a[href="/nodes?q=group%3A` + id + `"]`)
		}), p.picture("list"),
		later(func(id string) func() error { return p.click(`a[href="/groups/` + id + `/delete"]`) }),
		p.there("dialog[open] form"), p.see("Its nodes are kept"), p.picture("delete"),
		p.click("dialog[open] button.d"), p.gone(name+"-new"), p.see(other),
		func() error {
			all, err := p.api.Groups(p, client.ListOptions{})
			for _, g := range all {
				if err == nil && g.Name == other {
					err = p.api.DeleteGroup(p, g.ID)
				}
			}
			return err
		}, p.gone(other), p.see("No node groups yet"),
	)
}
