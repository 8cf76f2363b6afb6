package main

import (
	"fmt"

	"github.com/buildyard/buildyard/client"
)

var poolFlows = []flow{
	{
		name: "pools", clause: "warm pools: made, changed, with the figures of the API, deleted", do: usePools,
		alone: true,
	},
}

// usePools keeps no standbys: other flows need the slots.
func usePools(p *page) error {
	name := p.name()
	id := ""
	learn := func() error {
		all, err := p.api.Pools(p, client.ListOptions{Filter: "name:" + name})
		if err == nil && len(all) != 1 {
			err = fmt.Errorf("there are %d pools %s", len(all), name)
		}
		if err == nil {
			id = all[0].ID
		}
		return err
	}
	later := func(step func(id string) func() error) func() error {
		return func() error { return step(id)() }
	}
	changed := func() error {
		got, err := p.api.Pool(p, id)
		if err == nil && (got.Name != name+"-new" || got.MaxAge != 12*60*60 || len(got.Schedule) != 1) {
			err = fmt.Errorf("the pool is %+v", got)
		}
		return err
	}
	figures := func(id string) func() error {
		return func() error {
			got, err := p.api.Pool(p, id)
			if err != nil {
				return err
			}
			return p.see(fmt.Sprintf("%d of %d ready", got.Ready, got.Wanted))()
		}
	}
	return steps(
		p.to("/pools"), p.live(), p.click(`a[href="/pools/new"]`), p.there("dialog[open] form"), p.picture("asked"),
		p.fill("dialog[open] #name", name), p.script(
			`document.querySelector("dialog[open] #template").value = "`+p.template+`"`),
		p.fill("dialog[open] #idle", "0"), p.click("dialog[open] .acts button"), p.see(name, "Standbys", "Time saved"),
		learn, later(func(id string) func() error { return p.at("/pools/" + id) }), p.live(), p.picture("detail"),
		p.to("/pools"), p.live(), later(figures), p.picture("list"),
		later(func(id string) func() error { return p.there(`#w-` + id + ` a[href="/pools/` + id + `"]`) }),
		later(func(id string) func() error { return p.click(`a[href="/pools/` + id + `/edit"]`) }),
		p.there("dialog[open] form"), p.fill("dialog[open] #name", name+"-new"),
		p.fill("dialog[open] #schedule", "sat-sun@10:00-12:00=0"), p.fill("dialog[open] #age", "12h"),
		p.picture("change"), p.click("dialog[open] .acts button"), p.see(name+"-new", "sat,sun@10:00-12:00=0", "12h"),
		changed, p.to("/templates/"+p.template), p.there(`a[href="/pools?q=template%3A`+p.template+`"]`),
		p.to("/pools"), p.live(),
		func() error { return p.api.UpdatePool(p, id, client.PoolRequest{Name: name + "-later"}) },
		p.see(name+"-later"),
		later(func(id string) func() error { return p.click(`a[href="/pools/` + id + `/delete"]`) }),
		p.there("dialog[open] form"), p.see("Instances that were standbys continue"), p.picture("delete"),
		p.click("dialog[open] button.d"), p.at("/pools"), p.gone(name+"-later"),
	)
}
