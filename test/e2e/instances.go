package main

import (
	"fmt"

	"github.com/buildyard/buildyard/client"
)

var instanceFlows = []flow{
	{name: "instances-filter", clause: "instances: the filter, chips and order are the address", do: filterInstances},
	{
		name: "instances-live", clause: "live without flicker: what is typed, chosen and scrolled to stays",
		do: liveInstances,
	},
	{name: "instances-end", clause: "instances: bulk end with a result per item", do: endInstances},
	{name: "instance-detail", clause: "instance: facts, raw JSON, copy as curl, its end", do: showInstance},
	{
		name: "search", clause: "search over everything and commands (Ctrl-K); filters complete fields and values",
		do: searchEverything,
	},
	{name: "instances-keys", clause: "keys: / j k x Enter g ?", do: keysOfInstances},
}

// name is one that no other flow in no other look has.
func (p *page) name() string { return p.flow + "-" + p.as.file() }

func filterInstances(p *page) error {
	name := p.name()
	ids, err := p.start(p, name, 2)
	if err != nil {
		return err
	}
	return steps(
		p.to("/instances"), p.fill("#q", "name:"+name), p.keys("\r"), p.at("/instances?q=name%3A"+name),
		p.see("2 instances that match"), p.chip("Started", 2),
		p.picture("fits"),
		p.click("a.chip"), p.holds(`location.search.includes("state%3Astarted")`), p.there(`a.chip[aria-current]`),
		p.there("#i-"+ids[0]),
		p.click(`th a[href*="sort=name"]`), p.holds(`location.search.includes("sort=name")`),
		p.there(`th[aria-sort="ascending"]`),
		p.to("/instances?q=colour:red"), p.see("; the fields are"), p.picture("refused"),
		p.to("/instances?q=state:colour"), p.see("unknown state", "want one of", "Started"),
		p.to("/instances?q=name:nobody-at-all"), p.see("No matching instances"), p.picture("none"),
	)
}

func liveInstances(p *page) error {
	name := p.name()
	ids, err := p.start(p, name, 1)
	if err != nil {
		return err
	}
	return steps(
		p.to("/instances?q=name:"+name+"*"), p.live(), p.click("#c-"+ids[0]), p.pointAway,
		p.fill("#q", "name:"+name+"* age<9h"),
		func() error { _, err := p.start(p, name+"-late", 1); return err },
		p.see(name+"-late"), p.holds(`document.getElementById("c-`+ids[0]+`").checked`),
		p.holds(`document.getElementById("q").value.endsWith("age<9h")`), p.holds(`document.activeElement.id === "q"`),
		p.picture("while-typing"),
	)
}

func endInstances(p *page) error {
	name := p.name()
	ids, err := p.start(p, name, 3)
	if err != nil {
		return err
	}
	return steps(
		p.to("/instances?q=name:"+name), p.click("#c-"+ids[0]), p.click("#c-"+ids[1]), p.see("2 selected"),
		p.picture("chosen"),
		p.click(`.bulk button[data-dialog]`), p.there("dialog[open] form"),
		p.see("Terminate 2 instances", "cannot be undone"), p.picture("asked"),
		p.click("dialog[open] button.d"), p.see("2 done"), p.holds(`document.querySelectorAll("#results tbody tr").length === 2`),
		p.holds(fmt.Sprintf(`[...document.querySelectorAll("#results td.name")].every((e) => e.textContent === %q)`, name)),
		p.holds(`[...document.querySelectorAll("#results td.r")].every((e) => e.textContent === "Terminated")`),
		p.holds(`document.querySelector("#results header").textContent.includes("Terminated 2")`), p.picture("ended"),
		func() error {
			return p.await(p, "their end", func() (bool, error) {
				list, err := p.api.Instances(p, client.ListOptions{Filter: "state:started name:" + name})
				return len(list) == 1 && list[0].InstanceID == ids[2], err
			})
		},
	)
}

func showInstance(p *page) error {
	name := p.name()
	ids, err := p.start(p, name, 1)
	if err != nil {
		return err
	}
	return steps(
		p.to("/instances/"+ids[0]), p.live(), p.see(name, "Started", "guest", "work-000"),
		p.there(`[data-command^="curl -s"]`), p.picture("running"),
		p.click("#raw summary"), p.see(`"instance_state": "Started"`),
		p.click("a.btn.d"), p.there("dialog[open] form"), p.click("dialog[open] button.d"), p.see("Terminated"),
		p.picture("past"),
	)
}

// chosenCommand is a JavaScript expression for the number of the selected line of the palette.
const chosenCommand = `[...document.querySelectorAll("#palette-found a")].findIndex((a) => a.getAttribute("aria-selected") === "true")`

func searchEverything(p *page) error {
	name := p.name()
	ids, err := p.start(p, name, 1)
	if err != nil {
		return err
	}
	found := func(text string) func() error {
		return p.holds(fmt.Sprintf(`document.getElementById("palette-found").textContent.includes(%q)`, text))
	}
	return steps(
		p.to("/nodes"), p.live(), p.press("Ctrl-k"), p.there("#palette[open]"), found("Start an instance"),
		p.picture("commands"), p.press("ArrowDown"), p.holds(chosenCommand+" === 1"), p.press("ArrowDown"),
		p.press("ArrowUp"), p.holds(chosenCommand+" === 1"), p.press("Enter"), p.at("/nodes/join"), p.back, p.live(),
		p.click("[data-palette]"), p.there("#palette[open]"), found("Start an instance"), p.fill("#palette-q", name), found(name), p.picture("found"), p.keys("\r"),
		p.at("/instances/"+ids[0]),
		p.to("/instances"), p.live(), p.fill("#q", "state:star"), p.there("#complete:not([hidden]) a"),
		p.picture("completed"), p.click("#complete a"), p.holds(`document.getElementById("q").value === "state:Started "`),
		p.there("main tbody tr"),
		p.to("/search?q="+name), p.see(name), p.picture("page"),
	)
}

func keysOfInstances(p *page) error {
	name := p.name()
	ids, err := p.start(p, name, 2)
	if err != nil {
		return err
	}
	return steps(
		p.to("/instances?q=name:"+name+"&sort=name"), p.live(), p.press("/"),
		p.holds(`document.activeElement.id === "q"`), p.leave,
		p.keys("j"), p.keys("x"), p.see("1 selected"), p.keys("?"), p.there("#help[open]"), p.picture("help"),
		p.click("#help button"), p.keys("j"), p.keys("k"), p.keys("\r"),
		p.holds(`["`+ids[0]+`","`+ids[1]+`"].some(id => location.pathname.endsWith(id))`),
		p.live(), p.keys("g"), p.keys("i"), p.at("/instances"),
	)
}
