package main

import (
	"errors"
	"fmt"
	"path/filepath"

	"github.com/buildyard/buildyard/client"
)

var firstFlows = []flow{{
	name: "first-run", clause: "first run: the checklist of an empty cloud, ticked as the cloud sees each step",
	do: followFirstSteps, alone: true,
}}

func followFirstSteps(p *page) (err error) {
	c := &specialCloud{}
	if c.Cloud, err = p.cloud(p, filepath.Join(p.stage.dir, p.name()), nil); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.End()) }()
	p.own = c
	if c.api, err = client.NewController(c.Controller, client.Options{}); err != nil {
		return err
	}
	steppedTo := func(done int) func() error { // the first steps are done, and the others are not
		return p.holds(fmt.Sprintf(`((all) => all.length === 4 && all.every((e, i) => e.classList.contains("done") === i < %d))(
			[...document.querySelectorAll("#first-run > ol > li")])`, done))
	}
	return steps(
		p.toCloud(c, "/"), p.live(), p.see("First steps", "Join a node", "Push a template", "Start an instance", "Connect CI",
			"buildnode join "+c.Controller), steppedTo(0), p.there(`#first-run li.now`), p.picture("empty"),
		func() error { return p.fleet(p, c.Cloud, "first", "--nodes", "1") }, steppedTo(1), p.see("Join a node: 1 joined"),
		func() (err error) {
			c.template, err = c.Push(p, "ci-base", "create", "--name", "ci-base", "--disk-size", "16M", "--cpu", "1", "--ram",
				"256M")
			return err
		}, steppedTo(2), p.see("Push a template: 1 in the registry"), p.picture("two"),
		func() error {
			_, err := c.api.Start(p, client.StartRequest{TemplateID: c.template, Name: p.name()})
			return err
		}, p.holds(`!document.querySelector("#first-run")`), p.see("Running instances"), p.gone("First steps"), p.picture("done"),
	)
}
