package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/buildyard/buildyard/client"
)

var mannerFlows = []flow{
	{name: "colours", clause: "light, dark, auto; compact and comfortable; both are kept", do: changeColors},
	{
		name:   "address-is-state",
		clause: "the address is the state: filter, order and part of the table outlive reload and back",
		do:     keepAddress,
	},
	{
		name:   "live-stays",
		clause: "live without flicker: focus, the chosen row, what is open, the place and typed text stay",
		do:     stayInPlace,
	},
	{name: "without-script", clause: "reading works without JavaScript, and plain forms do", do: useNoScript},
	{name: "reduced-motion", clause: "reduced motion: nothing moves", do: moveNothing},
	{name: "times", clause: "times are relative, and absolute on hover", do: readTimes},
	{
		name: "copy-as-curl", clause: "copy as curl: the command of each page gives what the page shows",
		do: copyCommands,
	},
	{
		name: "reach-health", clause: "Health is in the navigation, on a phone under More; the list of nodes does not shift",
		do: reachHealth,
	},
	{name: "jumps", clause: "keys: g jumps to every area", do: jump},
	{name: "failure", clause: "a failure says what, why, request id, what to do", do: fail},
	{
		name: "guards", clause: "strict CSP, nothing inline, the cookie of a session, changes from other sites refused",
		do: tryGuards, alone: true,
	},
	{name: "hostile", clause: "hostile names, tags and script output are text everywhere", do: showHostile},
}

func changeColors(p *page) error {
	back := func(dark bool) func() error {
		return p.holds(
			fmt.Sprintf(
				`(() => { const c = document.createElement("canvas").getContext("2d"); c.fillStyle = getComputedStyle(document.body).backgroundColor; c.fillRect(0, 0, 1, 1); return (c.getImageData(0, 0, 1, 1).data[0] < 128) === %t; })()`, dark))
	}
	row := func(pixels int) func() error {
		if p.as.width < 760 { // a row is a card there
			return p.holds(fmt.Sprintf(
				`parseFloat(getComputedStyle(document.querySelector("main tbody tr")).paddingTop) === %d`, pixels/4))
		}
		return p.holds(
			fmt.Sprintf(
				`Math.abs(document.querySelector("main tbody tr:not(:last-child)").getBoundingClientRect().height - %d) <= 2`, pixels))
	}
	shows := func(theme string) func() error { // also in a menu that is closed
		return p.holds(fmt.Sprintf(
			`[...document.querySelectorAll("[data-theme-next]")].every(e => e.textContent === "Theme: %s")`, theme))
	}
	rows := func(density string) func() error {
		return p.holds(fmt.Sprintf(
			`[...document.querySelectorAll("[data-density-next]")].every(e => e.textContent === "Rows: %s")`, density))
	}
	next, denser := p.click("[data-theme-next]"), p.click("[data-density-next]")
	return steps(
		p.toLab("/instances"), p.live(), back(p.as.theme == "dark"), row(36),
		next, shows("light"), back(false), p.reload, shows("light"), back(false), p.picture("light"),
		next, shows("dark"), back(true), p.reload, shows("dark"), back(true), p.picture("dark"),
		next, shows("auto"), p.reload, back(p.as.theme == "dark"),
		denser, rows("comfortable"), row(44), p.reload, rows("comfortable"), row(44),
		p.picture("comfortable"), denser, row(36),
	)
}

func keepAddress(p *page) error {
	const whole = "/instances?page=2&q=name%3Acrowd&sort=name"
	second := fmt.Sprintf("51 to 100 of %d", waitingOf)
	return steps(
		p.toLab("/instances"), p.live(), p.fill("#q", "name:crowd"), p.keys("\r"), p.at("/instances?q=name%3Acrowd"),
		p.see(fmt.Sprint(waitingOf)+" instances that match"),
		p.click(`th a[href*="sort=name"]`), p.holds(`location.search.includes("sort=name")`),
		p.there(`th[aria-sort="ascending"]`),
		p.click(`a[rel="next"]`), p.at(whole), p.see(second), p.picture("second"),
		p.reload, p.at(whole), p.see(second), p.holds(`document.getElementById("q").value === "name:crowd"`),
		p.there(`th[aria-sort="ascending"]`),
		p.click("main tbody tr a"), p.holds(`location.pathname.length > 20`), p.back, p.at(whole), p.see(second),
		p.click(`a[rel="prev"]`), p.see(fmt.Sprintf("1 to 50 of %d", waitingOf)), p.click("a.chip"),
		p.holds(`location.search.includes("state%3A")`), p.there("a.chip[aria-current]"),
		p.back, p.holds(`!location.search.includes("state%3A")`),
		p.holds(`!document.querySelector("a.chip[aria-current]")`),
		p.click("main tbody input[name=chosen]"), p.click(`button[name="all"]`), p.there("dialog[open] form"),
		p.see(fmt.Sprintf("Terminate %d instances", waitingOf), fmt.Sprintf("Type %d instances", waitingOf)),
		p.picture("all-that-fit"), p.click("dialog[open] [data-close]"),
	)
}

func reachHealth(p *page) error {
	health := p.click(`.side a[href="/health"]`)
	if p.as.width < 800 {
		health = func() error { return steps(p.click("#more summary"), p.click(`#more a[href="/health"]`)) }
	}
	return steps(p.to("/nodes"), p.live(), p.unmoved, health, p.at("/health"), p.see("Checks"), p.picture("health"))
}

func stayInPlace(p *page) error {
	name := p.name()
	ids, err := p.start(p, name, 2)
	if err != nil {
		return err
	}
	count := 0
	change := func() error { // and wait until the page was notified
		count++
		text := fmt.Sprint("told ", count)
		return errors.Join(p.api.UpdateInstance(p, ids[0],
			client.InstanceUpdate{Metadata: map[string]any{"news": text}}), p.see(text)())
	}
	open := func(n int) func() error {
		return p.holds(fmt.Sprintf(`document.querySelectorAll("main details[open]").length === %d`, n))
	}
	row := fmt.Sprintf(`document.querySelector("tr.at")?.id === "i-%s"`, ids[1])
	return steps(
		p.to("/instances?q=name:"+name+"*"), p.live(), p.unmoved, // a list of all grows by what others start
		p.to("/instances/"+ids[0]), p.live(), p.click("#raw summary"), open(1), change,
		p.script(
			`document.querySelector("#raw pre").scrollIntoView(); window.place = () => document.querySelector("#raw pre").getBoundingClientRect().top; window.y = place(); document.querySelector("#raw summary").focus({preventScroll: true}); window.kept = document.querySelector("#raw")`),
		p.holds("scrollY > 0"), change, change, open(1), p.holds("Math.abs(place() - window.y) < 2"), // whole pixels are scrolled
		p.holds(`document.activeElement?.tagName === "SUMMARY"`),
		p.holds(`document.querySelector("#raw") === window.kept`), p.picture("details"),
		p.to("/instances?q=name:"+name+"*&sort=name"), p.live(),
		p.script(
			fmt.Sprintf(
				`for (let i = 0; i < 2 && !document.querySelector("#i-%s.at"); i++) document.dispatchEvent(new KeyboardEvent("keydown", { key: "j" })); document.querySelector("#i-%s td a").focus(); getSelection().selectAllChildren(document.querySelector("#i-%s td a")); window.text = String(getSelection())`, ids[1], ids[1], ids[0])), p.click("#c-"+ids[1]), p.pointAway,
		p.script(fmt.Sprintf(`document.querySelector("#i-%s td a").focus()`, ids[1])),
		p.script(
			`window.rows = document.querySelector("#rows"); window.lost = []; new MutationObserver((all) => lost.push(...all.flatMap((m) => [...m.removedNodes]).filter((n) => n.nodeName === "TR"))).observe(document.querySelector("main"), {childList: true, subtree: true})`),
		func() error { _, err := p.start(p, name+"-late", 1); return err }, p.see(name+"-late"),
		p.holds(`document.querySelector("#rows") === rows && lost.length === 0`), p.holds(row),
		p.holds(fmt.Sprintf(`document.activeElement === document.querySelector("#i-%s td a")`, ids[1])),
		p.holds(fmt.Sprintf(`document.getElementById("c-%s").checked`, ids[1])), p.see("1 selected"), p.picture("row"),
		p.script(`window.pieces = document.body.childNodes.length; htmx.trigger(document.body, "changed")`), p.settled,
		p.script(`htmx.trigger(document.body, "changed")`), p.settled,
		p.holds("document.body.childNodes.length === window.pieces"),
	)
}

// areas are the pages of the navigation.
var areas = []string{
	"/", "/nodes", "/instances", "/templates", "/groups", "/pools", "/events", "/logs", "/keys", "/permission-groups",
	"/health", "/usage", "/account",
}

func useNoScript(p *page) error {
	name := p.name()
	ids, err := p.start(p, name, 1)
	if err != nil {
		return err
	}
	node, err := p.someNode()
	if err != nil {
		return err
	}
	all := []func() error{p.noScript}
	for _, path := range append(areas, "/instances/"+ids[0], "/nodes/"+node.NodeID, "/templates/"+p.template,
		"/instances/start?vmid="+p.template, "/nodes/join", "/logs/controller") {
		all = append(all, p.to(path), p.there("main h1"),
			p.holds(
				`document.querySelector("main").innerText.length > 60 && !document.querySelector("main").innerText.includes("Action failed")`))
	}
	return steps(append(
		all,
		p.to("/"), p.see("Active nodes"), p.picture("dashboard"),
		p.to("/instances"), p.fill("#q", "name:"+name), p.click("noscript button"), p.at("/instances?q=name%3A"+name),
		p.see("1 instance that match"), p.picture("filtered"),
		p.click("#c-"+ids[0]), p.click(`.bulk button.dp`), p.see("Terminate 1 instance", "cannot be undone"),
		p.picture("form"), p.click("button.d"), p.at("/instances/"+ids[0]),
		p.to("/instances/start?vmid="+p.template), p.fill("#f-name", name+"-2"), p.click(".acts button"),
		p.see(name+"-2"),
		p.toGuarded("/instances"), p.fill(`input[name="token"]`, rootToken), p.click(".stack button"),
		p.at("/instances"), p.see("No instances."),
	)...)
}

// observeNewRow keeps the animation of a row that has just appeared: the next change of the row ends it.
const observeNewRow = `(new MutationObserver(() => {
	const cell = document.querySelector("tr.new td");
	if (cell) window.newRow = getComputedStyle(cell).animationName;
}).observe(document.body, {subtree: true, childList: true, attributes: true, attributeFilter: ["class"]}), true)`

func moveNothing(p *page) error {
	name := p.name()
	if _, err := p.start(p, name, 1); err != nil {
		return err
	}
	return steps(
		p.still, p.to("/instances?q=name:"+name+"*"), p.live(), p.holds(observeNewRow),
		func() error { _, err := p.start(p, name+"-late", 1); return err }, p.holds(`window.newRow === "none"`),
		p.holds(
			`[...document.querySelectorAll("*")].every(e => { const s = getComputedStyle(e); return s.animationName === "none" && s.transitionDuration.split(", ").every(d => d === "0s"); })`),
		p.holds("document.getAnimations().length === 0"), p.picture("list"),
	)
}

func readTimes(p *page) error {
	ids, err := p.start(p, p.name(), 1)
	if err != nil {
		return err
	}
	node, err := p.someNode()
	if err != nil {
		return err
	}
	var all []func() error
	for _, path := range []string{"/instances?q=id:" + ids[0], "/instances/" + ids[0], "/nodes", "/nodes/" +
		node.NodeID, "/templates", "/templates/" + p.template, "/events", "/logs"} {
		all = append(all, p.to(path), p.there("main time"),
			p.holds(
				`[...document.querySelectorAll("main time")].every(e => !isNaN(Date.parse(e.dateTime)) && /^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC/.test(e.title))`))
	}
	return steps(append(
		all, p.to("/instances?q=id:"+ids[0]), p.live(),
		p.holds(`/^\d+ m?s/.test(document.querySelector("main td time").textContent)`),
		p.holds(
			`Math.abs(Date.now() - Date.parse(document.querySelector("main td time").title.replace(" UTC", "Z").replace(" ", "T"))) < 120000`), p.picture("row"),
	)...)
}

func copyCommands(p *page) error {
	ids, err := p.start(p, p.name(), 1)
	if err != nil {
		return err
	}
	node, err := p.someNode()
	if err != nil {
		return err
	}
	paths := []string{
		"/", "/nodes", "/instances", "/templates", "/groups", "/pools", "/events", "/logs", "/health",
		"/logs/controller", "/instances/" + ids[0], "/nodes/" + node.NodeID, "/templates/" + p.template,
	}
	for _, path := range paths {
		if err := steps(p.to(path), p.there("main [data-command]"), p.copied(path)); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
	}
	return steps(p.to("/instances/"+ids[0]), p.live(), p.click("main [data-command]"), p.see("Copied"),
		p.runs("main [data-command]", ids[0], `"instance_state"`), p.picture("copied"))
}

// copied runs the commands of a page that are curl's.
func (p *page) copied(path string) func() error {
	return func() error {
		all, err := p.text(
			`[...document.querySelectorAll("main [data-command]")].map(e => e.dataset.command).join("\n\n")`)
		if err != nil {
			return err
		}
		n := 0
		for command := range strings.SplitSeq(all, "\n\n") {
			if rest, ok := strings.CutPrefix(command, "curl -s"); ok {
				n++
				if err := p.shell("curl -sf" + rest); err != nil {
					return err
				}
			}
		}
		if n == 0 {
			return fmt.Errorf("%s has no command of curl", path)
		}
		return nil
	}
}

func jump(p *page) error {
	all := []func() error{p.to("/instances"), p.live(), p.picture("from")}
	for i, key := range "dnitgelkphu" {
		all = append(all, p.keys("g"), p.keys(string(key)), p.at(areas[i]),
			p.there(`nav [aria-current="page"][href="`+areas[i]+`"]`), p.there("main h1"))
	}
	return steps(all...)
}

func fail(p *page) error {
	said := func(path string, code int, texts ...string) func() error {
		return func() error {
			return steps(p.refusal(code), p.to(path), p.see(append(texts, "Action failed", "Request")...),
				p.holds(`/^Request ID \S{8,}$/.test(document.querySelector("main section p:last-child").textContent)`))
		}
	}
	return steps(
		said("/instances/0197e1c2-0000-7c11-9f5e-0d6f4f0a1b22", 404, "Instance", "All instances"),
		p.picture("unknown"),
		said("/nodes/0197e1c2-0000-7c11-9f5e-0d6f4f0a1b22", 404, "Node"),
		said("/templates/0197e1c2-0000-7c11-9f5e-0d6f4f0a1b22", 404, "Template"), said("/logs/nobody", 404, "Log"),
		p.refusal(400), p.to("/instances/end"), p.see("No instance selected", "Correct the value"),
		p.picture("nothing-chosen"),
	)
}

func tryGuards(p *page) error {
	strict := `(async () => { const r = await fetch(location); const c = r.headers.get("content-security-policy"); return !!c && !/unsafe|\*|https?:/.test(c) && ["default-src 'none'", "script-src 'self'", "style-src 'self'", "object-src 'none'", "base-uri 'none'", "frame-ancestors 'none'", "form-action 'self'"].every(t => c.includes(t)) ? "yes" : "no: " + c; })()`
	inline := `String([...document.querySelectorAll("script:not([src]), style, [style], [onclick], [onload], [onerror]")].length)`
	all := []func() error{p.visitsServices, p.enter}
	for _, path := range append(areas, "/instances/start", "/nodes/join") {
		all = append(all, p.toGuarded(path), func() error {
			said, err := p.text(strict)
			if err == nil && said != "yes" {
				err = fmt.Errorf("the policy of %s is not strict: %s", path, said)
			}
			text, err2 := p.text(
				`fetch(location).then(r => r.text()).then(t => { const d = new DOMParser().parseFromString(t, "text/html"); return ` + strings.ReplaceAll(inline, "document.", "d.") + `; })`)
			if err2 == nil && text != "0" {
				err2 = fmt.Errorf("%s has %s inline scripts or styles", path, text)
			}
			return errors.Join(err, err2)
		})
	}
	return steps(append(
		all, p.cookie, p.holds(`document.cookie === ""`), p.picture("inside"),
		func() error {
			_, err := p.root.CreateGroup(p, client.GroupRequest{Name: p.name()})
			return err
		},
		func() error {
			return p.tab.Navigate(p, p.services.site+p.guarded.Controller+"/groups/new")
		},
		p.see("You have won"), p.refusal(403), p.click("button"), p.see("another site"), p.picture("refused"),
		func() error {
			return p.tab.Navigate(p, p.services.site+p.guarded.Controller+"/api/v1/group")
		},
		p.refusal(403), p.refusal(401), p.click("button"), p.holds(`!document.body.innerText.includes("You have won")`),
		p.alone,
	)...)
}

// cookie checks the one that a session has.
func (p *page) cookie() error {
	n, strict, err := p.tab.Cookies(p, p.guarded.Controller+"/")
	if err == nil && (n != 1 || !strict) {
		err = fmt.Errorf("%d cookies, HttpOnly and SameSite=Strict: %t; want 1 of them", n, strict)
	}
	return err
}

// alone checks that the untrusted site created no group, and deletes the one of the flow.
func (p *page) alone() error {
	all, err := p.root.Groups(p, client.ListOptions{})
	if err == nil && (len(all) != 1 || all[0].Name != p.name()) {
		err = fmt.Errorf("the groups are %v", all)
	}
	for _, g := range all {
		err = errors.Join(err, p.root.DeleteGroup(p, g.ID))
	}
	p.mu.Lock()
	p.refusals = nil // one of two was enough
	p.mu.Unlock()
	return err
}

func showHostile(p *page) error {
	ids, err := p.lab.api.Start(p, client.StartRequest{
		TemplateID: p.lab.template, Name: p.name() + hostile, ExternalID: hostile, NodeID: p.lab.node,
		Metadata:      map[string]any{hostile: hostile},
		StartupScript: []byte("echo " + hostile + "\necho " + hostile + " >&2"), ScriptMonitoring: true,
	})
	if err != nil {
		return err
	}
	unharmed := p.holds(
		`window.ran === undefined && !document.querySelector("main img, main b > b, main td b, main dd b, main script:not([src])")`)
	shown := func(path string, texts ...string) func() error {
		return func() error { return steps(p.toLab(path), p.see(texts...), unharmed) }
	}
	return steps(
		p.hold("its start", func() (bool, error) {
			i, err := p.lab.api.Instance(p, ids[0])
			return i.InstanceState == "Started" && i.StartupScript != nil, err
		}),
		shown("/instances/"+ids[0], hostile, "exit code"), p.live(), p.picture("instance"),
		p.script(`htmx.trigger(document.body, "changed")`), p.see(hostile), unharmed,
		shown("/instances?q=id:"+ids[0], p.name()+hostile), p.live(), p.picture("instances"),
		p.script(`document.querySelector('a[href="/instances/`+ids[0]+`"]').click()`), p.click(".head a.btn.d"),
		p.there("dialog[open] form"), p.see(hostile), unharmed, p.picture("dialog"),
		shown("/templates", hostile), shown("/templates/"+p.lab.template, hostile), p.picture("template"),
		shown("/templates/"+p.lab.template+"/distribute", hostile),
		shown("/templates/"+p.lab.template+"/delete", hostile),
		shown("/nodes", hostile), shown("/nodes/"+p.lab.node, hostile), p.picture("node"),
		shown("/nodes/"+p.lab.node+"/edit"), shown("/nodes/"+p.lab.node+"/groups", hostile),
		shown("/groups", hostile), p.picture("groups"),
		shown("/pools/new?template_id="+p.lab.template, hostile), shown("/groups/"+p.lab.group+"/edit"),
		shown("/events?q=instance:"+ids[0], "started on"), p.picture("events"),
		shown("/instances/start?vmid="+p.lab.template+"&name=%3Cimg%20src%3Dx%20onerror%3D%22window.ran%3D1%22%3E",
			"img src=x"), shown(`/instances?q=%22%3E%3Cimg%20src%3Dx%20onerror%3Dwindow.ran%3D1%3E`),
		func() error { return p.lab.api.Terminate(p, ids[0]) },
	)
}
