package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/license"
	"github.com/buildyard/buildyard/test/rig"
)

// tierCase starts the services under one license and then under others. permissions is whether
// permissions are enforced from then on: what was denied stays denied.
type tierCase struct {
	name   string
	phases []phase
}

// phase is a time under one license.
type phase struct {
	licenseName string // "": none
	permissions bool
}

var tiers = []tierCase{
	{"a license enterprise gives everything to everybody", []phase{{"enterprise", false}, {"basic", false}}},
	{"a license enterprise plus has permissions count, and so they do when it ends", []phase{
		{"plus", true}, {"ended", true}, {"enterprise", true}, {"basic", true}, {"plus", true},
	}},
	{
		"without a license permissions count, and so they do under each",
		[]phase{{"", true}, {"enterprise", true}, {"basic", true}},
	},
}

// licenses are the licenses that the phases name.
var licenses = map[string]license.License{
	"basic": {Tier: farm.TierBasic}, "enterprise": {Tier: farm.TierEnterprise}, "plus": {Tier: farm.TierEnterprisePlus},
	"ended": {Tier: farm.TierEnterprisePlus, Expires: time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)},
}

// play starts the services once for each phase, and asks as a key without permissions.
func (c tierCase) play(ctx context.Context, dir string, programs rig.Programs, secrets *rig.Secrets) (err error) {
	stand := rig.NewStand(ctx)
	defer stand.Close()
	if err := rig.MakeDir(dir); err != nil {
		return err
	}
	program, key := programs.Path("buildyard"), filepath.Join(dir, "authority.key")
	if _, err := rig.Output(ctx, "", program, "license", "keygen", "--key", key); err != nil {
		return err
	}
	file := filepath.Join(dir, "controller.lic")
	s := &deployment{
		name: c.name, dir: dir, sides: alike(serviceAuth{auth: true, keys: true, permissions: true}), secrets: secrets,
		programs: programs, stand: stand,
		settings: map[string]string{},
	}
	defer func() {
		if err = errors.Join(err, s.close()); err != nil {
			err = fmt.Errorf("%w\n%s", err, s.tails())
		}
	}()
	for i, p := range c.phases {
		if err := issue(key, file, p.licenseName); err != nil {
			return err
		}
		settings := map[string]string{}
		if p.licenseName != "" {
			settings["SVC_LICENSE_FILE"], settings["SVC_LICENSE_AUTHORITY"] = file, filepath.Join(dir, "authority.pub")
		}
		if i == 0 {
			s.settings = settings
			err = s.open(ctx)
		} else {
			err = s.restart(ctx, settings)
		}
		if err == nil {
			err = s.denies(ctx, p.permissions)
		}
		if err != nil {
			return fmt.Errorf("phase %d, %s: %w", i+1, p.licenseName, err)
		}
	}
	return nil
}

// issue writes a license.
func issue(key, file, name string) error {
	if name == "" {
		return nil
	}
	secret, err := license.ReadSecret(key)
	if err != nil {
		return err
	}
	l := licenses[name]
	l.Product = license.Controller
	text, err := license.IssueKey(secret, l)
	if err != nil {
		return err
	}
	return os.WriteFile(file, []byte(text+"\n"), 0o600)
}

// denies asks both services as a key without permissions, and as root.
func (s *deployment) denies(ctx context.Context, permissions bool) error {
	for service, path := range map[string]string{controller: "/api/v1/node", registry: "/registry/v2/vm"} {
		value, err := s.bearer(ctx, service, "nothing")
		if err != nil {
			return err
		}
		a, err := send(ctx, s.plain, "GET "+s.addresses[service]+path, "", "Authorization", value)
		if err != nil || (a.code == http.StatusForbidden) != permissions || !permissions && a.code != http.StatusOK {
			return fmt.Errorf("%s: %d %.200s, %w", service, a.code, a.body, err)
		}
		if a, err = send(ctx, s.plain, "GET "+s.addresses[service]+keyPath(service), "", "Authorization",
			value); err != nil || a.code != http.StatusForbidden {
			return fmt.Errorf("keys of the %s for somebody: %d, %w", service, a.code, err)
		}
		if err := opened(send(ctx, s.plain, "GET "+s.addresses[service]+keyPath(service), "", "Authorization",
			basic("root", s.root))); err != nil {
			return fmt.Errorf("keys of the %s for root: %w", service, err)
		}
	}
	return nil
}
