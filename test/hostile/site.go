package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/client"
	"github.com/buildyard/buildyard/test/rig"
)

// arrangement is how the services of a family of attacks are set up.
type arrangement struct {
	none     bool // every attack starts what it needs
	noAuth   bool // authentication is off
	settings map[string]string
	nodes    int // simulated ones, for the jobs of others; 0: the attacks have no bystander
}

// family is attacks on the same services.
type family struct {
	name    string
	site    arrangement
	attacks []attack
}

// attack is one row of the report.
type attack struct {
	name  string
	do    func(ctx context.Context, s *site, o *outcome)
	after bool // the bystander comes after it, since it measures what a service does for the attacker
}

// site is a controller with its registry in one process, and simulated nodes.
type site struct {
	arrangement
	dir      string
	programs rig.Programs

	up, fleet            *rig.Process
	controller, registry string // addresses
	root                 string // token
	joinToken            string
	rooted               caller // the root user, from a separate address
	other                *client.Controller
	builds, empty        string // ids of node groups: with all simulated nodes, and with no node
	a, b                 string // ids of templates with the tags v1 and v2
	hosts                byte   // addresses that attackers have had
	metrics              string // address
	elsewhere            string // address of the controller; "": chosen here
}

// Addresses of callers that are no attackers, below 127.0.1.
const (
	rootHost      = 250
	bystanderHost = 251
)

// attacker returns a caller from an address that was not used before.
func (s *site) attacker() caller {
	s.hosts++
	return from(s.hosts)
}

// open starts the services and prepares what attacks need.
func (s *site) open(ctx context.Context) error {
	if s.none {
		return rig.MakeDir(s.dir)
	}
	if err := s.start(ctx); err != nil {
		return err
	}
	if s.nodes == 0 {
		return nil
	}
	if err := s.furnish(ctx); err != nil {
		return fmt.Errorf("%w; the service said: %s", err, s.up.Tail())
	}
	return nil
}

// startAt starts the services, whose controller is reached at an address in the settings.
func (s *site) startAt(ctx context.Context, controller string) error {
	s.elsewhere = controller
	return s.start(ctx)
}

// start starts the services.
func (s *site) start(ctx context.Context) error {
	if err := rig.MakeDir(s.dir); err != nil {
		return err
	}
	var hosts [3]string
	for i := range hosts {
		var err error
		if hosts[i], err = rig.FreeAddr(ctx); err != nil {
			return err
		}
	}
	s.controller, s.registry, s.metrics = "http://"+hosts[0], "http://"+hosts[1], "http://"+hosts[2]
	settings := map[string]string{
		"SVC_LISTEN_ADDR": hosts[0], "SVC_REGISTRY_LISTEN_ADDRESS": hosts[1], "SVC_REGISTRY": s.registry,
		"SVC_LOCAL_LISTEN_ADDR": "none",
		"SVC_DATA_DIR":          s.dataDir(), "SVC_REGISTRY_BASE_PATH": s.storage(), "SVC_INSTANCE_TIME_OUT": "1s",
		"SVC_LOG_LEVEL":      "warn",
		"SVC_ENABLE_METRICS": "true", "SVC_METRICS_PORT": hosts[2][strings.LastIndex(hosts[2], ":")+1:],
	}
	s.controller = cmp.Or(s.elsewhere, s.controller)
	s.rooted = from(rootHost)
	if !s.noAuth {
		s.root = rand.Text()
		s.rooted = s.rooted.with(basic(s.root))
		file := filepath.Join(s.dir, "root.token")
		if err := os.WriteFile(file, []byte(s.root+"\n"), 0o600); err != nil {
			return err
		}
		maps.Copy(settings, map[string]string{
			"SVC_ENABLE_AUTH": "true", "SVC_ROOT_TOKEN_FILE": file, "SVC_ENABLE_API_KEYS": "true",
			"SVC_ENABLE_CONTROLLER_AUTHORIZATION": "true", "SVC_ENABLE_REGISTRY_AUTHORIZATION": "true",
		})
	}
	maps.Copy(settings, s.settings)
	s.up = rig.NewProcess(s.dir, "up", s.programs.Path("buildyard"), "up")
	s.up.Set(settings)
	return s.boot(ctx)
}

func (s *site) dataDir() string { return filepath.Join(s.dir, "controller") }
func (s *site) storage() string { return filepath.Join(s.dir, "registry") }

// boot starts the process and waits until both services are ready.
func (s *site) boot(ctx context.Context) error {
	if err := s.up.Start(); err != nil {
		return err
	}
	if err := rig.Ready(ctx, s.up, s.registry); err != nil {
		return err
	}
	return rig.Ready(ctx, s.up, s.controller)
}

// furnish makes templates, users, groups and nodes.
func (s *site) furnish(ctx context.Context) (err error) {
	for i, id := range []*string{&s.a, &s.b} {
		for _, tag := range []string{"v1", "v2"} {
			if *id, err = s.push(ctx, *id, fmt.Sprint("template ", i+1), tag); err != nil {
				return err
			}
		}
	}
	for _, g := range []struct {
		name string
		id   *string
	}{{"builds", &s.builds}, {"empty", &s.empty}} {
		var made api.Group
		if err := s.rooted.get(ctx, "POST "+s.controller+"/api/v1/group", map[string]string{"name": g.name},
			&made); err != nil {
			return err
		}
		*g.id = made.ID
	}
	if s.other, err = s.user(ctx, "bystander", connections(bystanderHost)); err != nil {
		return err
	}
	if s.joinToken, err = rig.Output(ctx, "", s.programs.Path("buildyard"), "node", "token", "--data-dir",
		s.dataDir()); err != nil {
		return err
	}
	file := filepath.Join(s.dir, "join.token")
	if err := os.WriteFile(file, []byte(s.joinToken+"\n"), 0o600); err != nil {
		return err
	}
	s.fleet = rig.NewProcess(s.dir, "nodes", s.programs.Path("buildnode"), "sim", "--controller", s.controller,
		"--token-file", file,
		"--nodes", fmt.Sprint(s.nodes), "--capacity", "50", "--groups", "builds", "--boot", "20ms-60ms", "--pull",
		"10ms", "--name", "sim")
	if err := s.fleet.Start(); err != nil {
		return err
	}
	return s.await(ctx, "the simulated nodes", func() (bool, error) {
		var list []api.Node
		err := s.rooted.get(ctx, "GET "+s.controller+"/api/v1/node", nil, &list)
		return len(list) == s.nodes, err
	})
}

// awaitTime is more than what services look at now and then takes to be noticed.
const awaitTime = 2 * time.Minute

// await looks until something is so.
func (s *site) await(ctx context.Context, what string, so func() (bool, error)) error {
	for deadline := time.Now().Add(awaitTime); time.Now().Before(deadline); {
		if ok, err := so(); ok || err != nil {
			return err
		}
		if !rig.Pause(ctx, 20*time.Millisecond) {
			return ctx.Err()
		}
	}
	return fmt.Errorf("waited %s for %s", awaitTime, what)
}

// everything is the permission group of users who may do everything except what only the root user
// may.
const everything = "everything"

// user returns the controller's client of a user with every permission, with an API key where
// authentication is on.
func (s *site) user(ctx context.Context, name string, transport http.RoundTripper) (*client.Controller, error) {
	o := client.Options{Transport: transport, Timeout: patience, Retries: client.NoRetries}
	if !s.noAuth {
		key, err := s.key(ctx, name, everything)
		if err != nil {
			return nil, err
		}
		o.Credentials = key
	}
	return client.NewController(s.controller, o)
}

// key makes an API key whose only group has every permission at both services, unless some are given.
func (s *site) key(ctx context.Context, name, group string, permissions ...string) (*client.APIKey, error) {
	for _, address := range []string{s.controller, s.registry} {
		if err := s.grant(ctx, address, group, permissions); err != nil {
			return nil, err
		}
	}
	root, err := client.NewController(s.controller,
		client.Options{Credentials: client.RootToken(s.root), Transport: s.rooted.by.Transport})
	if err != nil {
		return nil, err
	}
	made, err := root.CreateKey(ctx, api.NewKey{ID: name, TTL: 24 * 3600, Groups: []string{group}})
	if err != nil {
		return nil, err
	}
	return client.ParseAPIKey(name, made.Reveal())
}

// grant returns a group those of the permissions that a service has; no permissions are all of them.
func (s *site) grant(ctx context.Context, address, group string, permissions []string) error {
	var all []api.Permission
	if err := s.rooted.get(ctx, "GET "+address+"/admin/api/v1/permission", nil, &all); err != nil {
		return err
	}
	list := []string{}
	for _, p := range all {
		if len(permissions) == 0 || strings.Contains(" "+strings.Join(permissions, " ")+" ", " "+p.Name+" ") {
			list = append(list, p.Name)
		}
	}
	return s.rooted.get(ctx, "POST "+address+"/admin/api/v1/permission/group/"+group,
		map[string]any{"permissions": list}, nil)
}

// close ends the programs.
func (s *site) close() (err error) {
	for _, p := range []*rig.Process{s.fleet, s.up} {
		if p != nil {
			err = errors.Join(err, p.End())
		}
	}
	return err
}

// attack runs one attack while a bystander runs jobs.
func (s *site) attack(ctx context.Context, family string, a attack) row {
	o := &outcome{}
	if s.nodes == 0 {
		a.do(ctx, s, o)
		return o.row(family + ": " + a.name)
	}
	if a.after {
		a.do(ctx, s, o)
	}
	others := s.bystand(ctx)
	if !a.after {
		a.do(ctx, s, o)
	}
	others.end(o)
	if !s.up.Running() {
		o.fault("the service has ended: %s", s.up.Tail())
	}
	return o.row(family + ": " + a.name)
}
