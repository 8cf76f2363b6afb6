package main

import (
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/client"
	"github.com/buildyard/buildyard/internal/bytesize"
)

var listFlows = []flow{
	{name: "columns", clause: "lists: columns are chosen, kept, in the address, and reset", do: chooseColumns},
	{
		name: "saved-filters", clause: "lists: a filter is kept by a name, opened by its address, and forgotten",
		do: saveFilter,
	},
	{name: "rows-held", clause: "live without flicker: no row moves under the pointer", do: holdRows},
	{name: "events-grouped", clause: "events: equal events of a minute are one row that lists them", do: groupEvents},
	{
		name: "prefetch-ways", clause: "template: five ways to choose nodes, each with the API's numbers before the start",
		do: previewPrefetch, alone: true,
	},
	{
		name: "start-snippets", clause: "instances: the start as curl, CLI, Go and CI jobs; the command runs",
		do: useSnippets,
	},
	{name: "logs-levels", clause: "logs: levels are colored and chosen; Older and Newer turn pages", do: turnLogs},
}

// heads waits until a list has columns, and lacks others.
func (p *page) heads(has, lacks string) func() error {
	return p.holds(fmt.Sprintf(`((all) => all.includes(%q) && !all.includes(%q))(
		[...document.querySelectorAll("main thead th")].map((e) => e.textContent.trim()))`, has, lacks))
}

func chooseColumns(p *page) error {
	name := p.name()
	ids, err := p.start(p, name, 1)
	if err != nil {
		return err
	}
	list := "/instances?q=name:" + name
	option := func(id string) func() error { return p.click(`main form.pop input[value="` + id + `"]`) }
	choose := func(a, b, address string) func() error { // a phone has no menu for it, but the same address
		if p.hasNoMenus() {
			return p.to(list + "&cols=" + address)
		}
		return func() error {
			// A refresh leaves the menu open, with what was chosen in it.
			return steps(option(a), p.refresh, p.holds(fmt.Sprintf(
				`((e) => e.checked !== e.defaultChecked && e.checkVisibility())(document.querySelector('main form.pop input[value="%s"]'))`,
				a)), option(b), p.click("main form.pop button.apply"))
		}
	}
	row := "#i-" + ids[0]
	id := fmt.Sprintf(`[...document.querySelectorAll("%s td.mono")].some((e) => e.textContent === %q)`, row, ids[0])
	return steps(
		p.to(list), p.live(), p.heads("Template", "ID"), choose("id", "template", "id"),
		p.holds(`location.search.includes("cols=id")`),
		p.heads("ID", "Template"), p.there(row), p.holds(id), p.picture("chosen"),
		// They are kept, and a link may have others.
		p.to(list), p.live(), p.heads("ID", "Template"), p.holds(id), p.reload, p.heads("ID", "Template"),
		p.to("/nodes"), p.heads("Slots", "Agent"), p.to(list+"&cols=mac"), p.heads("MAC address", "ID"),
		// Back to the first choice.
		p.to(list), p.live(), p.heads("MAC address", "Template"), choose("mac", "template", "template"),
		p.heads("Template", "MAC address"), p.to(list), p.heads("Template", "MAC address"),
	)
}

// hasNoMenus reports whether the heads of lists have no room for their menus.
func (p *page) hasNoMenus() bool { return p.as.width < 760 }

func saveFilter(p *page) error {
	name := p.name()
	ids, err := p.start(p, name, 1)
	if err != nil {
		return err
	}
	const menu = "details[data-saved] "
	kept := func(n int) func() error {
		return p.holds(fmt.Sprintf(`document.querySelectorAll("%s[data-saved-list] a").length === %d`, menu, n))
	}
	open := p.click(menu + "summary")
	filter := "name:" + name + " state:started"
	if p.hasNoMenus() { // the filter is its address there too
		return steps(p.to("/instances?q="+url.QueryEscape(filter)), p.live(), p.see("1 instance that match"),
			p.there("#i-"+ids[0]), p.holds(`!document.querySelector("details[data-saved]").checkVisibility()`))
	}
	return steps(
		p.to("/instances"), p.live(), p.fill("#q", filter),
		p.script(`document.getElementById("filter").requestSubmit()`), p.holds(`location.search.includes("state%3Astarted")`),
		p.see("1 instance that match"), kept(0), open, p.see("No filter is kept yet"),
		p.fill(menu+"input[name=name]", "mine"), p.keys("\r"), kept(1), p.picture("saved"),
		p.to("/instances"), p.live(), kept(1), open, p.click(menu+"[data-saved-list] a"),
		p.holds(fmt.Sprintf(`new URLSearchParams(location.search).get("q") === %q`, filter)), p.there("#i-"+ids[0]),
		p.see("1 instance that match"),
		p.to("/nodes"), p.live(), kept(0), p.to("/instances"), p.live(), open, p.click(menu+"[data-saved-list] button"),
		kept(0), p.reload, kept(0),
	)
}

// holdRows points at a row while a newer one comes, which would be above it, and at a slot while its instance ends.
func holdRows(p *page) error {
	name := p.name()
	ids, err := p.start(p, name, 3)
	if err != nil {
		return err
	}
	row := fmt.Sprintf(`document.getElementById("i-%s")`, ids[0])
	later := func() error { _, err := p.start(p, name+"-late", 1); return err }
	vm, err := p.api.Instance(p, ids[0])
	if err != nil {
		return err
	}
	return steps(
		p.to("/instances?q=name:"+name+"*"), p.live(), p.see("3 instances that match"), p.click("#c-"+ids[0]),
		p.script(`window.top0 = `+row+`.getBoundingClientRect().top`), later, p.see("4 instances that match"),
		p.holds(row+`.getBoundingClientRect().top === window.top0`), p.see("rows held"), p.unmoved, p.picture("held"),
		p.pointAway, p.see(name+"-late"), p.live(),
		p.to("/nodes/"+vm.NodeID), p.live(), p.click("#slots #i-"+ids[0]+" td.r"),
		p.script(`window.top0 = `+row+`.getBoundingClientRect().top`),
		func() error { return p.api.Terminate(p, ids[0]) }, p.see("rows held"), p.settled,
		p.holds(row+`?.getBoundingClientRect().top === window.top0`), p.picture("slot"), p.pointAway,
		p.holds("!"+row), p.live(),
	)
}

// minuteRows is a JavaScript expression for the numbers of events in the rows of the list, and what their members are.
const minuteRows = `[...document.querySelectorAll("table.events tbody tr")].map((r) => ({
	count: Number(r.querySelector("summary .tag")?.textContent.match(/\d+/)[0] ?? 1), shown: r.querySelectorAll(".members li").length }))`

func groupEvents(p *page) error {
	name := p.name()
	ids, err := p.start(p, name, 4)
	if err != nil {
		return err
	}
	filter := "instance:" + strings.Join(ids, ",")
	agrees := func() (bool, error) {
		events, err := p.api.Events(p, client.EventQuery{Filter: filter, Limit: 1000})
		if err != nil {
			return false, err
		}
		rows, err := evaluate[[]struct{ Count, Shown int }](p, minuteRows)
		n, grouped := 0, false
		for _, row := range rows {
			n += row.Count
			grouped = grouped || row.Count > 1 && row.Shown == row.Count
		}
		return n == len(events) && n > 0 && grouped, err
	}
	return steps(p.to("/events?q="+filter), p.live(), p.hold("rows with all events of the API", agrees),
		p.click("table.events summary"), p.there("table.events details[open] .members li"), p.picture("open"))
}

// previewPrefetch compares what the form of a prefetch says with the API. Of the nodes one has the template.
func previewPrefetch(p *page) (err error) {
	id, err := p.lab.push(p, p.name(), "v1")
	if err != nil {
		return err
	}
	slow, err := p.lab.api.Nodes(p, client.ListOptions{Filter: "name:slow-0001"})
	if err != nil || len(slow) != 1 {
		return errors.Join(fmt.Errorf("%d nodes are slow-0001", len(slow)), err)
	}
	group, err := p.lab.api.CreateGroup(p, client.GroupRequest{Name: p.name()})
	if err != nil {
		return err
	}
	defer func() {
		err = errors.Join(err, p.lab.api.DeleteGroup(p, group.ID), p.lab.registry.DeleteTemplate(p, id))
	}()
	if err := p.lab.api.AddNodeToGroups(p, slow[0].NodeID, group.ID); err != nil {
		return err
	}
	if _, err := p.lab.api.Distribute(p, client.DistributeRequest{TemplateID: id, Filter: "name:broken*"}); err != nil {
		return err
	}
	preview := func(r client.DistributeRequest) (api.DistributePreview, error) {
		r.TemplateID, r.Tag = id, "v1"
		return p.lab.api.PreviewDistribution(p, r)
	}
	agrees := func(r client.DistributeRequest) func() error {
		return p.hold("the numbers of the API", func() (bool, error) {
			want, err := preview(r)
			if err != nil {
				return false, err
			}
			text, err := p.text(`document.querySelector("dialog[open] #dry").innerText.replace(/\s+/g, " ") + "|" +
				document.querySelector("dialog[open] #prefetch").textContent`)
			return strings.Contains(text, previewText(want)), err
		})
	}
	way := func(name string) func() error { return p.click(`dialog[open] input[value="` + name + `"]`) }
	return steps(
		p.hold("the one node that has it", func() (bool, error) {
			all, err := preview(client.DistributeRequest{})
			return all.Cached == 1 && all.Nodes > 3, err
		}),
		p.toLab("/templates/"+id), p.live(), p.click(`.head a[href$="/distribute"]`), p.there("dialog[open] form"),
		agrees(client.DistributeRequest{}), p.picture("all"),
		way("groups"), p.see("Choose one or more groups"), p.click(`dialog[open] input[value="`+group.ID+`"]`),
		agrees(client.DistributeRequest{GroupIDs: []string{group.ID}}), p.picture("groups"),
		way("missing"), agrees(client.DistributeRequest{Filter: `-template:"` + id + `:v1"`}), p.picture("missing"),
		way("filter"), p.fill(`dialog[open] input[name="filter"]`, "name:slow*,broken*"), p.see("slow-0002", "broken-0001"),
		agrees(client.DistributeRequest{Filter: "name:slow*,broken*"}), p.picture("filter"),
		p.holds(`document.querySelector("dialog[open] #prefetch").textContent === "Prefetch to 2 nodes"`),
		way("nodes"), p.see("Select one or more nodes."), p.fill(`dialog[open] input[name="find"]`, "slow-0001"),
		p.holds(`document.querySelectorAll("dialog[open] #picks input").length === 1`),
		p.click("dialog[open] #pick-"+slow[0].NodeID), p.see("1 selected"),
		agrees(client.DistributeRequest{NodeIDs: []string{slow[0].NodeID}}), p.picture("nodes"),
	)
}

// previewText is the begin of what a form says about a preview.
func previewText(want api.DistributePreview) string {
	have, nodes := "have", "nodes"
	if want.Cached == 1 {
		have = "has"
	}
	if want.Nodes == 1 {
		nodes = "node"
	}
	pulled := fmt.Sprintf("%d nodes pull up to %s each, at most %s together.", want.ToPull, bytesize.Format(want.NodeBytes),
		bytesize.Format(want.TotalBytes))
	if want.ToPull == 1 {
		pulled = "1 node pulls up to " + bytesize.Format(want.NodeBytes) + "."
	}
	return fmt.Sprintf("%d of %d %s %s v1 already. %s", want.Cached, want.Nodes, nodes, have, pulled)
}

func useSnippets(p *page) error {
	name := p.name()
	all := []func() error{
		p.to("/instances/start"), p.choose("#f-vmid", p.template), p.fill("#f-tag", "v1"), p.fill("#f-name", name),
	}
	for id, text := range map[string]string{
		"curl": "/api/v1/vm", "cli": "buildyard instance start", "go": "client.NewController", "github": "runs-on:",
		"gitlab": "after_script:",
	} {
		all = append(all, p.click(`label[for="k-`+id+`"]`), p.holds(fmt.Sprintf(
			`((all) => all.length === 1 && all[0].id === "same-%s" && all[0].textContent.includes(%q) &&
				all[0].textContent.includes(%q))([...document.querySelectorAll(".snip pre")].filter((e) => e.checkVisibility()))`,
			id, text, name)), p.picture(id))
	}
	return steps(append(all,
		p.runs("#same-curl .copy", `"status":"OK"`), p.hold("what curl started", p.startedAs(name, 1)),
		func() error {
			command, err := p.text(`document.querySelector("#same-cli .copy").dataset.command`)
			if err != nil {
				return err
			}
			program := p.programs.Path("buildyard")
			return p.shell(strings.Replace(command, "buildyard ", program+" ", 1))
		}, p.hold("what the command started", p.startedAs(name, 2)))...)
}

// logPage is the least number of rows that a page of logs can have.
const logPage = 50

func turnLogs(p *page) error {
	name := p.name()
	var rows []api.LogRow
	for i := range logPage + 10 {
		level := "INFO"
		if i%10 == 0 {
			level = "ERROR"
		}
		rows = append(rows, api.LogRow{Service: "node", MachineName: name, Content: fmt.Sprintf(
			`{"time":"2026-01-02T03:04:%02dZ","level":%q,"msg":"%s row %03d"}`, i%60, level, name, i)})
	}
	if _, err := p.lab.registry.Send(p, rows); err != nil {
		return err
	}
	n := func(n int) func() error {
		return p.holds(fmt.Sprintf(`document.querySelectorAll("#log > li").length === %d`, n))
	}
	list := "/logs/node?lines=50&q=" + name
	return steps(
		p.toLab(list), n(logPage), p.see("50 rows, newest first"), p.click(`a[rel="next"]`), n(10), p.see("row 000"),
		p.gone("row 059"), p.picture("older"), p.click(`a[rel="prev"]`), n(logPage), p.see("row 059"),
		p.click(`.chips a[href*="level"][href*="error"]`), n(6), p.holds(
			`[...document.querySelectorAll("#log > li")].every((e) => e.classList.contains("error") &&
				e.querySelector("b.bad")?.textContent === "ERROR")`), p.see("row 050"), p.gone("row 051"), p.picture("errors"),
	)
}
