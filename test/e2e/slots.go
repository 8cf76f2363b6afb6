package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/buildyard/buildyard/client"
	"github.com/buildyard/buildyard/internal/bytesize"
)

var slotFlows = []flow{
	{
		name: "failed-slot", clause: "truth: a failed VM holds a slot, and every page says so with the API's numbers",
		do: seeFailedSlot, alone: true,
	},
	{
		name: "sizes", clause: "truth: sizes of templates and tags are the API's; dialogs count live instances",
		do: compareSizes,
	},
	{
		name: "console-returns", clause: "console: connects again after a restart of the controller", do: keepConsole,
		alone: true,
	},
}

// slotKeys is a JavaScript expression for the key of the slots of a page: numbers by their uses.
const slotKeys = `Object.fromEntries([...document.querySelectorAll("#slots .key li")].map((e) =>
	[e.firstElementChild.nextSibling.data.trim(), Number(e.querySelector("b").textContent.replace(/\D/g, ""))]))`

func seeFailedSlot(p *page) error {
	ids, err := p.lab.api.Start(p, client.StartRequest{
		TemplateID: p.lab.template, Name: p.name(), NodeID: p.lab.node, StartupScript: []byte("exit 3"),
		ScriptMonitoring: true, ScriptFailHandler: client.StopOnFailure,
	})
	if err != nil {
		return err
	}
	node := "/nodes/" + p.lab.node
	ofNode := func() (numbers, error) {
		n, err := p.lab.api.Node(p, p.lab.node)
		if err != nil || n.Slots == nil || n.Slots.Failed == 0 {
			return nil, errors.Join(errors.New("the node has no failed VM"), err)
		}
		return numbers{"held by failed VMs": float64(n.Slots.Failed), "free": float64(n.Slots.Free)}, nil
	}
	ofCloud := func() (numbers, error) {
		s, err := p.lab.api.Stats(p)
		return numbers{
			"held by failed VMs": float64(s.Slots.Failed), "free": float64(s.Slots.Free), "running": float64(s.Slots.Running),
		}, err
	}
	return steps(
		p.hold("the failure", func() (bool, error) {
			n, err := ofNode()
			return n != nil, ignoreNone(n, err)
		}),
		p.toLab(node), p.live(), p.there(`#slots tr.held#i-`+ids[0]+` a[href="/instances/`+ids[0]+`"]`),
		p.see("Failed VM", "held by", "See why it failed"), p.sameKeys(ofNode), p.picture("node"),
		p.toLab("/nodes"), p.live(), p.sameKeys(ofCloud), p.see("failed"), p.picture("nodes"),
		p.hold("the tile of slots", func() (bool, error) {
			s, err := p.lab.api.Stats(p)
			if err != nil {
				return false, err
			}
			used := s.Slots.Running + s.Slots.Failed + s.Slots.Orphaned + s.Slots.Other
			want := fmt.Sprintf("%d of %d, %d free", used, s.Slots.Capacity, s.Slots.Free)
			if err := p.toLab("/")(); err != nil {
				return false, err
			}
			text, err := p.text(`[...document.querySelectorAll(".tile")].find((t) => t.innerText.includes("Slots used"))?.textContent ?? ""`)
			return strings.Contains(text, want) && strings.Contains(text, fmt.Sprintf("%d failed", s.Slots.Failed)), err
		}),
		p.toLab("/instances/"+ids[0]), p.live(), p.there("#failure"), p.see("It still holds a slot of its node"),
		func() error { return p.lab.api.Terminate(p, ids[0]) },
		p.toLab(node), p.live(), p.holds(`!document.querySelector("#i-`+ids[0]+`")`),
	)
}

// ignoreNone drops the error of numbers that are not there yet.
func ignoreNone(n numbers, err error) error {
	if n == nil {
		return nil
	}
	return err
}

// sameKeys waits until the key of the slots has the numbers of the API.
func (p *page) sameKeys(of func() (numbers, error)) func() error {
	return p.hold("slots as in the API", func() (bool, error) {
		want, err := of()
		if err != nil {
			return false, err
		}
		shown, err := evaluate[numbers](p, slotKeys)
		if err != nil {
			return false, err
		}
		return true, differs(shown, want)
	})
}

func compareSizes(p *page) error {
	name := p.name()
	id, err := p.lab.push(p, name, "v1", "v2")
	if err != nil {
		return err
	}
	detail, err := p.lab.registry.Template(p, id)
	if err != nil {
		return err
	}
	ids, err := p.lab.api.Start(p, client.StartRequest{TemplateID: id, Name: name, GroupID: p.lab.group, Count: 2})
	if err != nil {
		return err
	}
	cell := func(selector, text string) func() error {
		return p.holds(fmt.Sprintf(`document.querySelector(%q).textContent.trim() === %q`, selector, text))
	}
	all := []func() error{
		p.toLab("/templates?q=name:" + name), p.live(),
		cell(`#t-`+id+` td[data-l="Size"]`, bytesize.Format(detail.Size)), p.picture("list"),
		p.toLab("/templates/" + id), p.live(), p.see("2 live instances"),
	}
	for _, v := range detail.Versions {
		row := fmt.Sprintf("#v-%d ", v.Number)
		all = append(all, cell(row+`td[data-l="Increment"]`, bytesize.Format(v.Increment)),
			cell(row+`td[data-l="Size"]`, bytesize.Format(v.Size)))
	}
	return steps(append(all,
		p.holds(`document.querySelector("main tbody tr .mono").textContent === "v2"`), p.picture("tags"),
		p.click(`.head a[href$="/delete"]`), p.there("dialog[open] form"), p.holds(
			`/\b2 (live )?instances/.test(document.querySelector("dialog[open]").innerText)`), p.picture("delete"),
		p.click("dialog[open] [data-close]"), p.closed,
		func() error {
			for _, one := range ids {
				if err := p.lab.api.Terminate(p, one); err != nil {
					return err
				}
			}
			return p.lab.registry.DeleteTemplate(p, id)
		})...)
}

// keepConsole restarts the controller under an open console.
func keepConsole(p *page) (err error) {
	ids, err := p.lab.api.Start(p, client.StartRequest{TemplateID: p.lab.template, Name: p.name(), NodeID: p.lab.node})
	if err != nil {
		return err
	}
	defer func() {
		if !p.lab.Running() {
			err = errors.Join(err, p.lab.Boot(p))
		}
		err = errors.Join(err, p.lab.api.Terminate(p, ids[0]))
	}()
	connected := `document.querySelector('#console-is[data-is="on"]') !== null`
	return steps(
		p.hold("the instance", func() (bool, error) {
			i, err := p.lab.api.Instance(p, ids[0])
			return i.InstanceState == "Started", err
		}),
		p.toLab("/instances/"+ids[0]+"/console"), p.holds(connected), p.script("window.kept = 1"),
		p.changes("typed", p.keys("before")), p.without, p.lab.Kill, p.see("connected again automatically"),
		p.picture("away"), func() error { return p.lab.Boot(p) },
		p.hold("the console", func() (bool, error) { return evaluate[bool](p, connected) }),
		p.holds("window.kept === 1"), p.changes("typed", p.keys("after")), p.picture("back"),
	)
}
