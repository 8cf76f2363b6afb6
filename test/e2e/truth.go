package main

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/client"
)

var truthFlows = []flow{
	{
		name: "numbers", clause: "each number of a page is the API's: tiles, chips, heads, navigation, slots",
		do: compareNumbers, alone: true,
	},
	{name: "usage", clause: "usage by group, owner and template, with the API's numbers", do: showUsage, alone: true},
	{name: "export", clause: "export of a list as CSV and JSON: all rows that match", do: exportList},
	{name: "time-zone", clause: "times in UTC or in the browser's time zone; the choice is kept", do: switchZone},
	{name: "watch-instance", clause: "notifications for a watched instance are asked for, not taken", do: watchOne},
}

// numbers are named numbers of a page, or of the API.
type numbers map[string]float64

// readNumbers is a JavaScript expression for the numbers that a page shows, by a prefix for their place and their name.
const readNumbers = `(() => {
	const out = {}, number = (text) => Number(text.replace(/[^0-9.]/g, "") || "0");
	for (const t of document.querySelectorAll(".tile")) {
		out["tile " + t.querySelector("dt").textContent.trim()] = number((t.querySelector("dd a") ?? t.querySelector("dd")).textContent);
	}
	for (const c of document.querySelectorAll("a.chip")) {
		const [, name, n] = c.textContent.trim().match(/^(.*?)\s+([\d\s,.]+)$/) ?? [];
		if (name) out["chip " + name] = number(n);
	}
	for (const a of document.querySelectorAll("#areas a.n")) {
		const b = a.querySelector("b");
		if (b) out["nav " + a.getAttribute("href")] = number(b.textContent);
	}
	const head = document.querySelector("header.top .sub")?.textContent ?? "";
	for (const [, n, what] of head.matchAll(/(\d[\d\u202f]*) (\w+)/g)) out["head " + what.replace(/s$/, "")] = number(n);
	for (const e of document.querySelectorAll("#slots .key li")) out["key " + e.firstElementChild.nextSibling.data.trim()] = number(e.querySelector("b").textContent);
	out["rows"] = document.querySelectorAll("main tbody tr[id]").length;
	const used = document.querySelectorAll("#slots tbody tr:has(.name a)").length;
	const more = number(document.querySelector("#slots p.in")?.textContent.match(/^\d+ more/)?.[0] ?? "");
	out["slots used"] = used;
	out["slots of"] = document.querySelectorAll("#slots tbody tr").length + more;
	return out;
})()`

// agrees waits until the numbers of a page that the API knows are the API's, which did not change in between.
func (p *page) agrees(path string, of func() (numbers, error)) func() error {
	return func() error {
		if err := p.to(path)(); err != nil {
			return err
		}
		for end := time.Now().Add(waitTime); ; {
			before, err := of()
			if err != nil {
				return err
			}
			if err := p.reload(); err != nil {
				return err
			}
			shown, err := evaluate[numbers](p, readNumbers)
			if err != nil {
				return err
			}
			after, err := of()
			if err != nil {
				return err
			}
			err = differs(shown, before)
			if err == nil && maps.Equal(before, after) {
				return nil
			}
			if time.Now().After(end) {
				return errors.Join(fmt.Errorf("%s: the API changed from %v to %v", path, before, after), err)
			}
		}
	}
}

// differs tells of the first number that a page lacks or that is another one.
func differs(shown, want numbers) error {
	for name, n := range want {
		if got, ok := shown[name]; !ok || got != n {
			return fmt.Errorf("%q is %v on the page and %v in the API; the page has %v", name, got, n, shown)
		}
	}
	return nil
}

// live returns the number of instances that are not terminated.
func live(s api.ControllerStats) (n int) {
	for state, k := range s.Instances {
		if state != "Terminated" {
			n += k
		}
	}
	return n
}

func compareNumbers(p *page) error {
	if _, err := p.start(p, p.name(), 2); err != nil {
		return err
	}
	n, err := p.someNode()
	if err != nil {
		return err
	}
	stats := func(pick func(api.ControllerStats) numbers) func() (numbers, error) {
		return func() (numbers, error) {
			s, err := p.api.Stats(p)
			return pick(s), err
		}
	}
	return steps(
		p.agrees("/", stats(func(s api.ControllerStats) numbers {
			return numbers{
				"tile Running instances": float64(s.Instances["Started"]), "tile Waiting in queue": float64(s.QueueDepth),
				"tile Active nodes": float64(s.Nodes["Active"]),
				"tile Slots used":   math.RoundToEven(100 * float64(s.CapacityUsed) / float64(s.Slots.Capacity)), "nav /instances": float64(live(s)), "nav /nodes": nodesOf,
			}
		})), p.picture("dashboard"),
		p.agrees("/instances", stats(func(s api.ControllerStats) numbers {
			ended := s.Instances["Terminated"]
			out := numbers{
				"chip Started": float64(s.Instances["Started"]), "head instance": float64(live(s)),
				"nav /instances": float64(live(s)),
			}
			if ended > 0 {
				out["head terminated"] = float64(ended)
			}
			return out
		})),
		p.agrees("/nodes", stats(func(s api.ControllerStats) numbers {
			return numbers{
				"key running": float64(s.Slots.Running), "key free": float64(s.Slots.Free),
				"chip Active": float64(s.Nodes["Active"]), "head node": nodesOf, "head VM": float64(s.Slots.Running),
				"head schedulable": float64(s.Capacity), "rows": nodesOf,
			}
		})), p.picture("nodes"),
		p.agrees("/nodes/"+n.NodeID, func() (numbers, error) {
			n, err := p.api.Node(p, n.NodeID)
			if err != nil || n.Slots == nil {
				return nil, errors.Join(errors.New("the node has no slots"), err)
			}
			return numbers{
				"slots used": float64(len(n.Slots.Holders)), "slots of": float64(n.Slots.Capacity),
				"key running": float64(n.Slots.Running), "key free": float64(n.Slots.Free),
			}, nil
		}),
		p.agrees("/templates", func() (numbers, error) {
			list, err := p.api.Templates(p, client.ListOptions{})
			return numbers{"head template": float64(len(list)), "rows": float64(len(list))}, err
		}),
	)
}

func showUsage(p *page) error {
	if _, err := p.start(p, p.name(), 1); err != nil {
		return err
	}
	starts := func() error {
		report, err := p.api.UsageReport(p, api.ByTemplate, api.RangeDay)
		if err != nil || len(report.Rows) == 0 {
			return errors.Join(errors.New("the API has no usage by template"), err)
		}
		return p.see(report.Rows[0].Name, fmt.Sprint(report.Rows[0].Starts))()
	}
	return steps(
		p.to("/usage"), p.there(`td[data-l="Instance hours"]`), p.there(`td[data-l="Queue p95"]`), p.picture("groups"),
		p.click(`a[href*="by=owner"]`), p.see("root"), p.click(`a[href*="by=template"]`), p.see("guest"), starts,
		p.picture("templates"), p.click(`a[href*="range=7d"]`), p.holds(`location.search.includes("range=7d")`),
		p.see("guest"),
	)
}

func exportList(p *page) error {
	name := p.name()
	ids, err := p.start(p, name, 3)
	if err != nil {
		return err
	}
	get := func(format string) string {
		return fmt.Sprintf(`fetch([...document.querySelectorAll("a[href*='/export']")].find((a) => `+
			`a.href.includes("json") === %t).href).then((r) => r.text())`, format == "json")
	}
	return steps(
		p.to("/instances?q=name:"+name), p.live(), p.there(`a[href*="/export"]`),
		p.holds("("+get("csv")+`).then((t) => t.trim().split("\n").length === 4 && t.includes("`+ids[2]+`"))`),
		p.holds("("+get("json")+`).then((t) => JSON.parse(t).length === 3)`),
	)
}

func switchZone(p *page) error {
	const button = `document.querySelector(".side [data-zone-next]")`
	next := p.script(button + `.click()`)
	return steps(
		p.to("/"), p.live(), p.holds(button+`.textContent.trim() === "Times: UTC"`), next,
		p.holds(button+`.textContent.includes("local")`), p.reload, p.holds(button+`.textContent.includes("local")`),
		p.holds(`[...document.querySelectorAll("main time[data-clock]")].every(t => !t.textContent.includes("UTC"))`),
		next, p.holds(button+`.textContent.trim() === "Times: UTC"`),
	)
}

func watchOne(p *page) error {
	ids, err := p.start(p, p.name(), 1)
	if err != nil {
		return err
	}
	return steps(
		p.to("/instances/"+ids[0]), p.live(), p.script(
			`window.asked = 0; Notification.requestPermission = async () => { window.asked++; return "denied"; }`),
		p.holds("window.asked === 0"), p.click("[data-watch]"), p.holds("window.asked === 1"), p.picture("asked"),
		// Once it is allowed, the end of the instance is told.
		p.script(`window.told = []; const ask = async () => "granted";
			window.Notification = function (text) { window.told.push(text); }; window.Notification.requestPermission = ask;`),
		p.click("[data-watch]"), p.see("Notifying"), p.holds("window.told.length === 0"),
		// It is told in a hidden tab, which draws nothing until it is visible.
		p.hide(true), func() error { return p.api.Terminate(p, ids[0]) },
		p.holds(fmt.Sprintf(`window.told.length > 0 && window.told[0].startsWith(%q)`, p.name()+": ")),
		p.holds(`document.hidden && document.querySelector("[data-watch]")?.dataset.watch === "Started"`),
		p.hide(false), p.gone("Notifying"),
	)
}
