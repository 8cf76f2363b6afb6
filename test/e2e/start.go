package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/buildyard/buildyard/client"
)

var startFlows = []flow{
	{
		name: "instance-start", clause: "instances: manual start (template, tag, options), the same as curl beside it",
		do: startInstance,
	},
	{
		name: "instance-detail-script", clause: "instance: timeline with durations, script output, ports, vminfo",
		do: showScript,
	},
	{
		name: "instance-script-runs", clause: "instance: the output of a startup script while it runs, phases of the start",
		do: followScript,
	},
	{name: "instance-waits", clause: "instance: why it waits, as reasons with numbers of nodes", do: showWaiting},
}

func startInstance(p *page) error {
	name := p.name()
	command := func(text string) func() error {
		return p.holds(
			fmt.Sprintf(
				`document.querySelector("#same-curl code").textContent.includes(%q) && `+
					`document.querySelector("#same-curl .copy").dataset.command === `+
					`document.querySelector("#same-curl code").textContent`, text))
	}
	return steps(
		p.to("/instances"), p.click(`a[href="/instances/start"]`), p.at("/instances/start"), p.picture("empty"),
		p.choose("#f-vmid", p.template), command(p.template), p.there(`#tags option[value="v1"]`),
		p.fill("#f-tag", "v1"), command(`"tag":"v1"`),
		p.fill("#f-name", name), command(name), p.click("#s-external_id"), p.click("#s-startup_script"),
		p.fill("#f-metadata", "branch=main"), command(`"branch":"main"`),
		p.fill("#f-startup_script", "echo it's <b>on</b>"), command("startup_script"),
		p.fill("#f-ttl", "soon"), p.picture("filled"), p.refusal(400), p.click("#start .acts button"),
		p.see("must be a time such as"), p.there(`#f-ttl[aria-invalid="true"]`), p.picture("refused"),
		p.fill("#f-ttl", "2h"), command(`"ttl"`), p.runs("#same-curl .copy", `"status":"OK"`),
		p.hold("what the command started", p.startedAs(name, 1)),
		p.click("#start .acts button"), p.there("h1"), p.holds(`/^.instances.[0-9a-f-]{36}$/.test(location.pathname)`),
		p.see(name, "Started", "branch", "main"), p.picture("started"),
		p.hold("both instances", p.startedAs(name, 2)),
	)
}

// startedAs reports whether so many instances of a name run.
func (p *page) startedAs(name string, n int) func() (bool, error) {
	return func() (bool, error) {
		list, err := p.api.Instances(p, client.ListOptions{Filter: "state:started name:" + name})
		return len(list) == n, err
	}
}

func showScript(p *page) error {
	ids, err := p.api.Start(p, client.StartRequest{
		TemplateID: p.template, Name: p.name(),
		StartupScript: []byte("echo the <b>words</b> of a script\necho its errors >&2\nexit 3"), ScriptMonitoring: true,
		ScriptFailHandler: 1,
		Ports:             []client.PortRule{{Name: "ssh", GuestPort: 22}},
		Metadata:          map[string]any{"branch": "<i>main</i>"},
	})
	if err != nil {
		return err
	}
	return steps(
		p.to("/instances/"+ids[0]), p.live(),
		p.see("exit code 3", "the <b>words</b> of a script", "its errors", "<i>main</i>"),
		p.see("Timeline", "Waiting for a slot", "ssh", "to port 22", "Guest address", "CPU"),
		p.holds(`[...document.querySelectorAll(".gantt .num")].some(e => /\d+ (ms|s)/.test(e.textContent))`),
		p.picture("ended"),
	)
}

// followScript compares the page of an instance with the API while its startup script runs.
func followScript(p *page) error {
	ids, err := p.lab.api.Start(p, client.StartRequest{
		TemplateID: p.lab.template, Name: p.name(), NodeID: p.lab.node, ScriptMonitoring: true,
		StartupScript: []byte("echo the first line\necho a warning >&2\nsleep 12\necho the last line"),
	})
	if err != nil {
		return err
	}
	phase := func(name string) func() error {
		return p.holds(fmt.Sprintf(`[...document.querySelectorAll(".gantt .lab")].some((e) => e.innerText.trim() === %q)`, name))
	}
	return steps(
		p.toLab("/instances/"+ids[0]), p.live(), p.hold("the output so far", func() (bool, error) {
			i, err := p.lab.api.Instance(p, ids[0])
			if err != nil || i.ScriptOutput == nil || i.ScriptOutput.Stdout == "" {
				return false, err
			}
			shown, err := p.text(`document.querySelector("#script")?.innerText ?? ""`)
			return i.Phase == "startup_script" && strings.Contains(shown, "Running") &&
				strings.Contains(shown, strings.TrimSpace(i.ScriptOutput.Stdout)), err
		}),
		p.see("the first line", "a warning"), phase("Booting"), p.gone("the last line"),
		p.picture("running"),
		p.see("exit code 0", "the last line"), phase("Running"), p.picture("ended"),
		p.holds(`!document.querySelector("main a[href^='/logs/']")`), // there is none of it
		func() error { return p.lab.api.Terminate(p, ids[0]) },
	)
}

func showWaiting(p *page) error {
	list, err := p.lab.api.Instances(p, client.ListOptions{Filter: "name:crowd state:scheduling"})
	if err == nil && len(list) != waitingOf {
		err = fmt.Errorf("%d instances wait", len(list))
	}
	if err != nil {
		return err
	}
	explained := func() (bool, error) {
		e, err := p.lab.api.Explain(p, list[0].InstanceID)
		if err != nil || e.Explain.Queue == nil {
			return false, err
		}
		var want []string
		for _, c := range e.Explain.Counts {
			want = append(want, fmt.Sprintf("%d %s %s", c.Nodes, c.Text, c.Remedy))
		}
		shown, err := evaluate[[]string](p, `[...document.querySelectorAll(".why li")].map((e) => [
			e.querySelector(".n").textContent, e.querySelector("h3").textContent.replace(/^nodes? (is|are) /, ""),
			e.querySelector(".what")?.textContent ?? ""].join(" "))`)
		if err != nil || !slices.Equal(shown, want) {
			return false, errors.Join(fmt.Errorf("the page has %q, the API %q", shown, want), err)
		}
		place := fmt.Sprintf("number %d of %d that wait", e.Explain.Queue.Position, e.Explain.Queue.Waiting)
		text, err := p.text(`document.querySelector("#why").innerText`)
		return strings.Contains(text, place), err
	}
	return steps(
		p.toLab("/instances/"+list[0].InstanceID), p.live(), p.hold("the reasons of the API", explained),
		p.see("Why is it waiting?", "broken-0001", "spare-0001", "Scheduling"),
		p.holds(fmt.Sprintf(`[...document.querySelectorAll(".why .n")].reduce((n, e) => n + Number(e.textContent), 0) === %d`,
			4+len(looks))), p.see("of "+fmt.Sprint(waitingOf)+" that wait for the same nodes"),
		p.picture("why"),
		p.toLab("/"), p.see("Waiting in queue", "oldest "), p.picture("queue"),
	)
}
