package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/test/rig"
)

// service is a separate host scanner: with its own configuration, inventory and port.
type service struct {
	*rig.Process
	s    *stage
	addr string
	dir  string // of its files
}

// settings are the settings of a service that differ from the defaults.
type settings struct {
	database string
	leave    []string // in addition to directories outside of the test
	more     map[string]any
	user     int // the user that it runs as; 0 is root
	home     string
}

// begin starts a service and waits until it answers.
func (s *stage) begin(ctx context.Context, name string, o settings) (*service, error) {
	addr, err := rig.FreeAddr(ctx)
	if err != nil {
		return nil, err
	}
	v := &service{s: s, addr: addr, dir: s.at("state", name)}
	if err := os.MkdirAll(v.dir, 0o755); err != nil {
		return nil, err
	}
	config := map[string]any{
		"listen-addr": addr, "log-file": filepath.Join(v.dir, "hostscan.log"),
		"db-backend-path": filepath.Join(v.dir, "catalogue.db"),
		"vuln-db-path":    o.database,
		"exclude-paths":   slices.Concat(s.leave, []string{s.back(), s.at("state"), s.at("bin")}, o.leave),
	}
	maps.Copy(config, o.more)
	b, err := yaml.Marshal(config)
	if err != nil {
		return nil, err
	}
	file := filepath.Join(v.dir, "hostscan.yml")
	if err := os.WriteFile(file, b, 0o644); err != nil {
		return nil, err
	}
	bin, args := s.program("hostscan"), []string{"serve", "-c", file}
	if o.user != 0 {
		if err := os.Chown(v.dir, o.user, o.user); err != nil {
			return nil, err
		}
		args = append([]string{fmt.Sprint("--reuid=", o.user), fmt.Sprint("--regid=", o.user), "--clear-groups", bin},
			args...)
		if bin, err = exec.LookPath("setpriv"); err != nil {
			return nil, err
		}
	}
	v.Process = rig.NewProcess(v.dir, name, bin, args...)
	if o.home != "" {
		v.Set(map[string]string{"HOME": o.home})
	}
	s.atEnd(v.End)
	return v, v.up(ctx)
}

// up starts the program and waits until it answers.
func (v *service) up(ctx context.Context) error {
	if err := v.Start(); err != nil {
		return err
	}
	return v.until(ctx, 20*time.Second, "the service answers", func(api.HostStatus) bool { return true })
}

// until waits until the status meets a condition.
func (v *service) until(ctx context.Context, most time.Duration, what string, as func(api.HostStatus) bool) error {
	end := time.Now().Add(most)
	for {
		st, err := v.status(ctx)
		if err == nil && as(st) {
			return nil
		}
		if !v.Running() {
			return fmt.Errorf("%s: the service has ended: %s", what, v.Tail())
		}
		if time.Now().After(end) {
			return errors.Join(fmt.Errorf("not within %s: %s; the service is %s, %d changes wait", most, what, st.State,
				st.Pending), err)
		}
		if !rig.Pause(ctx, 50*time.Millisecond) {
			return context.Cause(ctx)
		}
	}
}

// quiet waits until no change waits to be read or compared.
func (v *service) quiet(ctx context.Context) error {
	return v.until(ctx, time.Minute, "everything is cataloged", func(st api.HostStatus) bool {
		return st.State != api.HostRunningFull && st.Pending == 0 && !st.Analyzing
	})
}

// ask calls the API.
func (v *service) ask(ctx context.Context, method, path string, q url.Values, into any) error {
	req, err := http.NewRequestWithContext(ctx, method, "http://"+v.addr+path+"?"+q.Encode(), nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	var a api.HostEnvelope
	if err := json.Unmarshal(b, &a); err != nil {
		return fmt.Errorf("%s %s: %w", method, path, err)
	}
	if a.Status != api.StatusOK || resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s %s: %s: %s", method, path, resp.Status, a.Error)
	}
	return json.Unmarshal(a.Body, into)
}

func (v *service) status(ctx context.Context) (st api.HostStatus, err error) {
	return st, v.ask(ctx, "GET", "/v1/status", nil, &st)
}

// whole returns the report since the reset.
func (v *service) whole(ctx context.Context) (r api.HostReport, err error) {
	return r, v.ask(ctx, "GET", "/v1/report", nil, &r)
}

// packages returns the packages of the report, each at each path, since a time; the zero time is
// the reset.
func (v *service) packages(ctx context.Context, from time.Time) (map[packageFile]bool, error) {
	q := url.Values{}
	if !from.IsZero() {
		q.Set("fromTime", from.Format(time.RFC3339Nano))
	}
	var list []api.HostPackage
	if err := v.ask(ctx, "GET", "/v1/report/packages", q, &list); err != nil {
		return nil, err
	}
	return placed(list), nil
}

func placed(list []api.HostPackage) map[packageFile]bool {
	out := map[packageFile]bool{}
	for _, p := range list {
		for _, l := range p.Locations {
			out[packageFile{p.Type, p.Name, p.Version, l.Path}] = true
		}
	}
	return out
}

// said is the result of a command.
type said struct {
	out, err string
	status   int
}

// run runs a command of the scanner.
func (v *service) run(ctx context.Context, args ...string) (said, error) {
	_, port, _ := strings.Cut(v.addr, ":")
	cmd := exec.CommandContext(ctx, v.s.program("hostscan"), append([]string{"-p", port}, args...)...)
	var out, problems bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &problems
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return said{}, err
	}
	return said{out.String(), problems.String(), cmd.ProcessState.ExitCode()}, nil
}

// command runs a command and expects an exit status and a text in its output.
func (v *service) command(ctx context.Context, r *row, status int, text string, args ...string) (said, error) {
	got, err := v.run(ctx, args...)
	if err != nil {
		return got, err
	}
	r.check(got.status == status && strings.Contains(got.out, text),
		"hostscan %s: exit status %d instead of %d, or without %q:\n%s%s", strings.Join(args, " "), got.status, status,
		text, clipped(got.out), clipped(got.err))
	return got, nil
}

// clipped returns the beginning of a text.
func clipped(text string) string {
	if len(text) > 600 {
		return text[:600] + "..."
	}
	return text
}
