package main

import (
	"errors"
	"fmt"
	"net/url"

	"github.com/buildyard/buildyard/client"
)

var breakFlows = []flow{
	{
		name: "links-within", clause: "links within a page stay on it: to the content, to a row of a log",
		do: followLinksWithin,
	},
	{
		name:   "slow-answers",
		clause: "live without flicker: what is shown is what was asked for last, however late answers come",
		do:     outrunAnswers,
	},
	{
		name:   "strange-answers",
		clause: "live without flicker: the error page of a proxy does not take the place of the page", do: surviveProxy,
	},
	{
		name:   "refusals-in-place",
		clause: "a failure in a dialog can be closed; a form within a page asks for the log-in that is over",
		do:     seeRefusals,
	},
	{
		name: "one-stream",
		clause: "live: a tab follows changes once, whatever becomes of the connection, and not at all while nobody " +
			"looks", do: followOnce,
	},
	{
		name:   "comes-back",
		clause: "live: a page outlives its controller, says that it waits, and is fresh once it is back",
		do:     outliveController, alone: true,
	},
}

func seeRefusals(p *page) error {
	node, err := p.someNode()
	if err != nil {
		return err
	}
	set := fmt.Sprintf(`form.place[action*=%q]`, node.NodeID)
	return steps(
		p.to("/nodes/"+node.NodeID), p.live(),
		p.refusal(404),
		p.script(
			`const a = document.querySelector("a[data-dialog][href$='/edit']"); a.href = "/nodes/nobody/edit"; a.click()`),
		p.there("dialog[open]"), p.see("Action failed"), p.picture("refused"), p.click("dialog[open] [data-close]"),
		p.closed,
		// An expired login is requested again; nothing reports that the action succeeded.
		p.script(
			`window.fetch = async () => new Response(null, { status: 204, headers: { "HX-Redirect": "/login?return=%2Fnodes" } })`), p.refusal(404),
		p.script(fmt.Sprintf(`document.querySelector(%q).requestSubmit()`, set)), p.at("/login?return=%2Fnodes"),
	)
}

func followLinksWithin(p *page) error {
	return steps(
		p.to("/instances"), p.live(), p.script(`window.kept = 1; document.querySelector("a.skip").click()`),
		p.holds(`location.hash === "#main" && document.activeElement?.id === "main"`), p.settled,
		p.holds("window.kept === 1"),
		p.to("/logs/controller"), p.there("#log li"),
		p.script(`window.kept = 1; document.querySelector('#log li a[href^="#l-"]').click()`),
		p.holds(`location.hash.startsWith("#l-") && !!document.querySelector("#log li:target")`), p.settled,
		p.holds("window.kept === 1"),
		p.back, p.settled, p.holds(`location.hash === "" && window.kept === 1`), p.picture("log"),
	)
}

// settled waits until the page has finished what it has begun.
func (p *page) settled() error {
	return steps(p.script(`window.rest = 0; setTimeout(() => { window.rest = 1; }, 400)`),
		p.holds(`document.readyState === "complete" && window.rest !== 0`))
}

func outrunAnswers(p *page) error {
	name := p.name()
	if _, err := p.start(p, name, 1); err != nil {
		return err
	}
	return steps(
		p.to("/instances?q=name:"+name), p.live(), p.see("1 instance that match"),
		// The earlier something is asked for, the later it is answered.
		p.script(
			`window.late = 2400; const ask = window.fetch; window.fetch = async (...all) => { const wait = window.late; window.late = Math.max(0, window.late - 800); const answer = await ask(...all); await new Promise(r => setTimeout(r, wait)); if (all[1]?.signal?.aborted) throw new DOMException("over", "AbortError"); return answer; }`),
		p.script(`htmx.trigger(document.body, "changed")`), p.fill("#q", "name:nobody"),
		p.script(`htmx.trigger(document.body, "changed")`), p.fill("#q", "name:"+name+" tag:v1"),
		p.script(`htmx.trigger(document.body, "changed")`),
		p.at("/instances?q="+url.QueryEscape("name:"+name+" tag:v1")), p.holds("window.late === 0"),
		p.script("window.wait = Date.now() + 3000"), p.holds("Date.now() > window.wait"),
		p.see("1 instance that match"), p.gone("No matching instances"),
		p.holds(fmt.Sprintf(`document.getElementById("main").getAttribute("hx-get").includes(%q)`, "tag%3Av1")),
		p.picture("list"),
	)
}

func surviveProxy(p *page) error {
	ids, err := p.start(p, p.name(), 1)
	if err != nil {
		return err
	}
	return steps(
		p.to("/instances/"+ids[0]), p.live(),
		p.script(
			`window.real = window.fetch; window.asked = 0; window.fetch = async () => { window.asked++; return new Response("<html><body><h1>502 Bad Gateway</h1></body></html>", { status: 502, headers: { "Content-Type": "text/html" } }); }; htmx.trigger(document.body, "changed")`),
		p.holds("window.asked > 0"), p.settled, p.there(`#main[data-live] h1`), p.gone("Bad Gateway"),
		p.script(`document.querySelector("main a[data-dialog]").click()`), p.there("dialog[open]"),
		p.see("The controller did not answer"), p.gone("Bad Gateway"), p.click("dialog[open] [data-close]"), p.closed,
		p.script(`window.fetch = window.real; htmx.trigger(document.body, "changed")`), p.see("Started"),
		p.picture("instance"),
	)
}

func followOnce(p *page) error {
	const open = `window.streams.filter(s => s.readyState !== 2).length`
	return steps(
		p.to("/instances"), p.live(),
		p.script(
			`window.streams = []; const Real = window.EventSource; window.EventSource = function (...all) { const s = new Real(...all); window.streams.push(s); return s; }`),
		p.hide(true), p.see("paused"), p.hide(false), p.live(), p.holds(open+" === 1"),
		p.script(`window.streams.at(-1).onerror()`), p.see("reconnecting"), p.hide(true), p.hide(false), p.live(),
		p.settled, p.settled, p.settled, p.settled, p.holds(open+" === 1"),
		p.script(`window.streams.at(-1).onerror()`), p.hide(true), p.settled, p.settled, p.settled, p.settled,
		p.holds(open+" === 0"), p.see("paused"), p.hide(false), p.live(), p.holds(open+" === 1"), p.picture("list"),
	)
}

// hide lets the page take its tab for hidden, or for visible.
func (p *page) hide(hidden bool) func() error {
	state := "visible"
	if hidden {
		state = "hidden"
	}
	return p.script(fmt.Sprintf(`for (const [name, value] of [["hidden", %t], ["visibilityState", %q]])
		Object.defineProperty(document, name, { configurable: true, get: () => value });
		document.dispatchEvent(new Event("visibilitychange"))`, hidden, state))
}

func outliveController(p *page) (err error) {
	name := p.name()
	start := func() error { // one that waits: it is there in any case
		_, err := p.lab.api.Start(p, client.StartRequest{TemplateID: p.lab.template, Name: name, GroupID: p.lab.group})
		return err
	}
	defer func() {
		if !p.lab.Running() {
			err = errors.Join(err, p.lab.Boot(p))
		}
	}()
	const end = `document.querySelector("#rows button[data-needs-chosen]")`
	return steps(
		start, p.toLab("/instances?q=name:"+name), p.live(), p.see("1 instance that match"),
		p.click("main tbody input[type=checkbox]"), p.holds(`!`+end+`.disabled`),
		p.script(`window.kept = 1; window.top0 = document.querySelector("main tbody").getBoundingClientRect().top`),
		p.without, p.lab.Kill, p.see("reconnecting", "1 instance that match", "The controller does not respond",
			"s ago, read-only", "Next attempt in"),
		p.holds(end+`.disabled && document.querySelector("header.top a.btn").getAttribute("aria-disabled") === "true"`),
		p.script(`document.querySelector("header.top a.btn").click(); document.querySelector("#rows").requestSubmit()`),
		p.holds(`document.querySelector("main tbody").getBoundingClientRect().top === window.top0`), p.picture("away"),
		// A tab that was hidden meets the same.
		p.hide(true), p.see("paused"), p.hide(false), p.see("reconnecting", "The controller does not respond"),
		p.click("[data-try-now]"), p.see("reconnecting"), func() error { return p.lab.Boot(p) }, start,
		p.script(`document.querySelector("[data-try-now]").click()`), p.live(), p.see("2 instances that match"),
		p.gone("The controller does not respond"), p.holds(`window.kept === 1 && !`+end+`.disabled`), p.picture("back"),
	)
}
