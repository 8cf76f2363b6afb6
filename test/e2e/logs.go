package main

import (
	"fmt"
	"strings"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/client"
)

var logFlows = []flow{
	{name: "logs", clause: "logs: list, search, tail, file and archive", do: useLogs, alone: true},
	{name: "logs-failed", clause: "logs: what a VM left that could not be started", do: showFailedLogs},
}

func useLogs(p *page) error {
	say := func(text string) func() error {
		return func() error {
			_, err := p.lab.registry.Send(p,
				[]api.LogRow{{Service: "node", MachineName: p.name(), Content: p.name() + " " + text}})
			return err
		}
	}
	return steps(
		say("the needle"), say("the hay "+hostile), p.toLab("/logs"), p.see(p.name()+" the needle", hostile), p.picture("programs"),
		p.click(`.chips a[href="/logs/node"]`), p.at("/logs/node"), p.see(p.name()+" the needle", hostile),
		p.picture("rows"), p.holds("window.ran === undefined"),
		p.fill("#q", p.name()+" THE NEEDLE"), p.click("#filter button"), p.see("1 row, newest first", "the needle"),
		p.gone("the hay"), p.holds(`location.search.includes("q=")`), p.picture("found"),
		p.see("Following"), say("the needle, later"), p.see("the needle, later"),
		say("nothing else"), say("the needle, last"), p.see("the needle, last", "3 rows, newest first"), p.gone("nothing else"),
		p.picture("followed"),
		p.click("#log summary"), p.see("Resume", "paused", "to this row"), say("the needle, unseen"),
		p.picture("opened"), p.click("#follow"), p.see("Following", "the needle, unseen"),
		p.download(`a[href^="/api/v1/log/view"]`, p.name()+" the needle"),
		p.download(`a[href^="/api/v1/log/archive"]`, "\x1f\x8b"),
	)
}

// download asks for what a link forwards to, which has to begin a file for the disk and hold a text.
func (p *page) download(selector, text string) func() error {
	return func() error {
		got, err := p.text(
			fmt.Sprintf(
				`(async () => { const a = document.querySelector(%q); const r = await fetch(a.href); const b = new Uint8Array(await r.arrayBuffer()); let s = ""; for (const c of b) s += String.fromCharCode(c); return r.status + " " + a.hasAttribute("download") + " " + s; })()`, selector))
		if err != nil {
			return err
		}
		want := "200 true "
		if !strings.HasPrefix(got, want) || !strings.Contains(got, binary(text)) {
			return fmt.Errorf("%s gave %.100q", selector, got)
		}
		return nil
	}
}

// binary encodes bytes as the page does: one character for each.
func binary(text string) string {
	var out strings.Builder
	for _, b := range []byte(text) {
		out.WriteRune(rune(b))
	}
	return out.String()
}

func showFailedLogs(p *page) error {
	ids, err := p.lab.api.Start(p,
		client.StartRequest{TemplateID: p.lab.template, Name: p.name(), NodeID: p.lab.broken})
	if err != nil {
		return err
	}
	link := `a[href="/logs/vm/` + ids[0] + `"]`
	if err := steps(p.toLab("/instances/"+ids[0]), p.there("#failure"),
		p.holds("!document.querySelector('"+link+"')")); err != nil {
		return err
	}
	file := "logs/" + ids[0] + "/20261123T100000.000Z-start.log"
	if _, err := p.lab.registry.Upload(p, file, strings.NewReader("start failed: no firmware "+hostile+"\n"),
		""); err != nil {
		return err
	}
	return steps(
		p.toLab("/instances/"+ids[0]), p.see("Error"), p.picture("instance"),
		p.click(link), p.at("/logs/vm/"+ids[0]), p.see("start failed: no firmware "+hostile), p.picture("log"),
		p.holds("window.ran === undefined"),
		p.toLab("/logs"), p.click(`a[href="/logs/vm"]`), p.click(link), p.see("no firmware"),
		p.download(`a[download]`, "no firmware"),
	)
}
