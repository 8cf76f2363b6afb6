package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/buildyard/buildyard/test/rig"
)

// openStreams is how many streams of logs a registry serves one caller at a time.
const openStreams = 64

// tooMany opens streams of logs until the registry refuses one.
func tooMany(ctx context.Context, p *caseRunner) error {
	c := p.stage.clouds["split"]
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	for i := range openStreams + 1 {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.registry+"/registry/log/stream?service=contract",
			nil)
		if err != nil {
			return err
		}
		resp, err := clientBy(c.stage.access.by(c.proxies[1])).Do(req)
		if err != nil {
			return err
		}
		defer func() { _ = resp.Body.Close() }()
		if (i < openStreams) != (resp.StatusCode == http.StatusOK) {
			return fmt.Errorf("stream %d is answered %d", i+1, resp.StatusCode)
		}
	}
	faults := p.play(ctx, sequence{Case: "one stream too many", On: "split", Steps: []step{
		{
			Send: "GET /registry/log/stream?service=contract", Code: 429,
			Fail: "~64 log streams.*SVC_MAX_LOG_STREAMS.*close some", As: "json",
		},
	}})
	stop() // all of them end
	faults = append(faults,
		p.play(context.WithoutCancel(ctx), sequence{Case: "a stream again", On: "split", Steps: []step{
			{
				Send: "GET /registry/log/stream?service=contract&lines=0", Stream: 100 * time.Millisecond,
				Within: 5 * time.Second, As: "json",
			},
		}})...)
	return faulty(faults)
}

// tiers starts controllers with a license of each tier, and uses what they cover and more.
func tiers(ctx context.Context, p *caseRunner) error {
	dir := filepath.Join(p.stage.dir, "tiers")
	if err := rig.MakeDir(dir); err != nil {
		return err
	}
	program, key := p.stage.programs.Path("buildyard"), filepath.Join(dir, "authority.key")
	if _, err := rig.Output(ctx, "", program, "license", "keygen", "--key", key); err != nil {
		return err
	}
	license := func(name, tier string, more ...string) error {
		args := append([]string{"license", "issue", "--key", key, "--product", "controller", "--tier", tier}, more...)
		text, err := rig.Output(ctx, "", program, args...)
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(dir, name), []byte(text+"\n"), 0o600)
	}
	if err := errors.Join(license("basic.lic", "basic"),
		license("enterprise.lic", "enterprise", "--expires", "2999-12-31")); err != nil {
		return err
	}
	for _, tier := range []string{"basic", "enterprise"} {
		if err := p.licensed(ctx, dir, tier); err != nil {
			return fmt.Errorf("with the tier %s: %w", tier, err)
		}
	}
	return nil
}

// licensed starts a controller under a license of a tier, on the registry of "split".
func (p *caseRunner) licensed(ctx context.Context, dir, tier string) (err error) {
	split := p.stage.clouds["split"]
	addr, err := rig.FreeAddr(ctx)
	if err != nil {
		return err
	}
	front, err := openProxy(ctx, p.stage, p.stage.access.scheme()+addr)
	if err != nil {
		return err
	}
	defer front.close()
	c := &cloud{
		name: tier, stage: p.stage, controller: p.stage.access.scheme() + addr, registry: split.registry,
		vars: split.vars, proxies: []*proxy{front, split.proxies[1]},
	}
	service := rig.NewProcess(dir, tier, p.stage.programs.Path("buildyard"), "controller", "--listen-addr", addr,
		"--data-dir", filepath.Join(dir, tier),
		"--registry", split.proxies[1].address, "--license-file", filepath.Join(dir, tier+".lic"),
		"--license-authority", filepath.Join(dir, "authority.pub"), "--log-level", p.stage.access.logLevel())
	service.Set(p.stage.access.settings())
	if err := service.Start(); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, service.End()) }()
	if err := p.stage.access.ready(ctx, service, c.controller); err != nil {
		return err
	}
	if err := p.stage.access.enroll(ctx, c, front); err != nil {
		return err
	}
	asks := func(more map[string]any) map[string]any {
		more["vmid"] = "$template"
		return more
	}
	fail := func(sentence string) string { // of what is not covered; "" where it is
		if tier == "basic" {
			return "~" + sentence + " the license tier enterprise, and this controller has basic"
		}
		return ""
	}
	steps := []step{
		{Send: "GET /api/v1/status", OK: map[string]any{"license": tier}},
		{Send: "POST /api/v1/vm", With: asks(map[string]any{}), OK: map[string]any{"": "!len 1"}},
		{Send: "POST /api/v1/vm", With: asks(map[string]any{"priority": 1000}), OK: map[string]any{"": "!len 1"}},
		{Send: "POST /api/v1/vm", With: asks(map[string]any{"priority": 5}), Fail: fail("^priority requires")},
		{Send: "POST /api/v1/group", With: map[string]any{"name": "g"}, Fail: fail("^Node groups require")},
		{Send: "GET /api/v1/group", Fail: fail("^Node groups require")},
		{Send: "GET /api/v1/usb", Fail: fail("^USB devices require")},
		{Send: "GET /api/v1/node"},
	}
	if tier == "basic" {
		steps = append(steps,
			step{
				Send: "POST /api/v1/vm", With: asks(map[string]any{"group_id": "$nobody"}),
				Fail: fail("^group_id requires"),
			},
			step{
				Send: "POST /api/v1/vm", With: asks(map[string]any{"usb_device": "phone"}),
				Fail: fail("^usb_device requires"),
			})
	} else {
		steps = append(steps,
			step{Send: "GET /api/v1/status", OK: map[string]any{"license_expires": "~^(2999-12-31|3000-01-01)T"}})
	}
	for i := range steps {
		steps[i].As = "json"
	}
	return p.at(ctx, c, steps)
}

// at plays steps at a cloud that is not of the stage.
func (p *caseRunner) at(ctx context.Context, c *cloud, steps []step) error {
	st := *p.stage
	st.clouds = map[string]*cloud{"up": c}
	other := &caseRunner{spec: p.spec, ledger: p.ledger, stage: &st}
	return faulty(other.play(ctx, sequence{Case: "the tier " + c.name, Steps: steps}))
}
