package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/config"
	"github.com/buildyard/buildyard/test/rig"
)

// post makes a call of the node link with a node's credential.
func (c *cloud) post(ctx context.Context, path, secret string, in, out any) error {
	raw, err := json.Marshal(in)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.proxies[0].address+path, bytes.NewReader(raw))
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+secret)
	resp, err := clientBy(plain).Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	var a api.Envelope[json.RawMessage]
	if err := json.NewDecoder(resp.Body).Decode(&a); err != nil {
		return err
	}
	if a.Status != api.StatusOK {
		return rig.Refusal(a.Message)
	}
	if out == nil {
		return nil
	}
	return json.Unmarshal(a.Body, out)
}

// wrong returns a value that a setting cannot have; "" when every text is one.
func wrong(s config.Setting) string {
	switch s.Kind {
	case config.Int, config.Duration, config.Size, config.Addr:
		return "not-a-value"
	case config.Bool:
		return "perhaps"
	}
	if s.Check != nil && s.Check("not a value") != nil {
		return "not a value"
	}
	return ""
}

// settings starts programs with every setting from each source, good ones and wrong ones.
func settings(ctx context.Context, p *caseRunner) error {
	dir := filepath.Join(p.stage.dir, "settings")
	if err := rig.MakeDir(dir); err != nil {
		return err
	}
	for _, service := range []struct {
		name  string
		table config.Table
	}{{"controller", config.ControllerTable}, {"registry", config.RegistryTable}} {
		for _, s := range service.table {
			if err := refusedSetting(ctx, p, service.name, dir, s); err != nil {
				return fmt.Errorf("%s of the %s: %w", s.Key, service.name, err)
			}
		}
		for _, source := range []string{"environment", "flags", "file"} {
			trial := trial{service: service.name, table: service.table, dir: filepath.Join(dir,
				service.name+source), source: source}
			if err := trial.run(ctx, p); err != nil {
				return fmt.Errorf("the %s with settings from %s: %w", service.name, source, err)
			}
		}
	}
	return nil
}

// refusedSetting sets a wrong value: the program ends immediately with one line that names it.
func refusedSetting(ctx context.Context, p *caseRunner, service, dir string, s config.Setting) error {
	value := wrong(s)
	if value == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, p.stage.programs.Path("buildyard"), service)
	cmd.Env = append(cleanEnv(), s.Key+"="+value, "HOME="+dir)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	text := strings.TrimSpace(string(out))
	if !errors.As(err, &exit) || !strings.Contains(text, s.Key) || strings.Count(text, "\n") > 1 {
		return fmt.Errorf("%s=%s: %w; it said: %s", s.Key, value, err, text)
	}
	return nil
}

// cleanEnv is the environment without settings.
func cleanEnv() []string {
	var env []string
	for _, e := range os.Environ() {
		if !strings.HasPrefix(e, "SVC_") {
			env = append(env, e)
		}
	}
	return env
}

// trial is a service that gets all its settings from one source.
type trial struct {
	service, source string
	table           config.Table
	dir             string
}

// run starts the service with every setting that has a default, or needs a value here, and checks
// that it listens at the configured address.
func (t trial) run(ctx context.Context, p *caseRunner) error {
	addr, err := rig.FreeAddr(ctx)
	if err != nil {
		return err
	}
	if err := rig.MakeDir(t.dir); err != nil {
		return err
	}
	args, env, err := t.given(addr, p.stage.clouds["split"].registry)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, p.stage.programs.Path("buildyard"), args...)
	var said bytes.Buffer
	cmd.Env, cmd.Stdout, cmd.Stderr, cmd.Dir = env, &said, &said, t.dir
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 5 * time.Second
	if err := cmd.Start(); err != nil {
		return err
	}
	ended := make(chan struct{})
	go func() {
		_ = cmd.Wait()
		close(ended)
	}()
	ready := answers(ctx, "http://"+addr+"/readyz", ended)
	cancel()
	<-ended
	if !ready {
		return fmt.Errorf("it does not listen on %s; it said: %s", addr, said.String())
	}
	return nil
}

// given returns arguments and environment with the settings.
func (t trial) given(addr, registry string) (args, env []string, err error) {
	values := map[string]string{
		config.ListenAddr: addr, config.DataDir: filepath.Join(t.dir, "data"),
		config.BasePath: filepath.Join(t.dir, "base"),
		config.Registry: registry, config.RegistryBasePath: filepath.Join(t.dir, "base"),
		config.LocalListenAddr: "127.0.0.1:0",
	}
	args, env = []string{t.service}, cleanEnv()
	var file strings.Builder
	for _, s := range t.table {
		value, ok := values[s.Key]
		if !ok {
			value = s.Default
		}
		if value == "" || isOfBucket(s) {
			continue
		}
		switch t.source {
		case "environment":
			env = append(env, s.Key+"="+value)
		case "flags":
			args = append(args, "--"+s.Flag+"="+value)
		default:
			file.WriteString(s.Key + "=" + value + "\n")
		}
	}
	if file.Len() > 0 {
		path := filepath.Join(t.dir, "settings")
		if err := os.WriteFile(path, []byte(file.String()), 0o600); err != nil {
			return nil, nil, err
		}
		args = append(args, "--config", path)
	}
	return args, env, nil
}

// isOfBucket reports whether a setting is for a storage on S3 alone: others refuse it.
func isOfBucket(s config.Setting) bool { return strings.HasPrefix(s.Key, "SVC_BACKEND_S3_") }

// answers waits until an address answers 200, or the program behind it has ended.
func answers(ctx context.Context, address string, ended <-chan struct{}) bool {
	for ctx.Err() == nil {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
		if err != nil {
			return false
		}
		if resp, err := clientBy(plain).Do(req); err == nil {
			_ = resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return true
			}
		}
		select {
		case <-ended:
			return false
		case <-time.After(pause):
		}
	}
	return false
}

// never checks what must not have occurred in any answer of the run. Every answer was compared with
// the shapes and ranges of the file; never checks that a violation would have been noticed.
func never(ctx context.Context, p *caseRunner) error {
	for pattern, bodies := range map[string][]string{
		"GET /api/v1/vm": {
			`{"instance_state":"Started","anka_registry":"","vmid":"` + unknownID +
				`","ts":"0001-01-01T00:00:00Z","cr_time":"0001-01-01T00:00:00Z","progress":1.5,"group_id":"","vlan":"","usb_device":""}`,
			`{"instance_state":"Started","anka_registry":"","vmid":"` + unknownID +
				`","ts":"0001-01-01T00:00:00Z","cr_time":"0001-01-01T00:00:00Z","progress":1,"group_id":null,"vlan":"","usb_device":""}`,
			`{"instance_state":"Started","arch":"x86_64","anka_registry":"","vmid":"` + unknownID +
				`","ts":"0001-01-01T00:00:00Z","cr_time":"0001-01-01T00:00:00Z","progress":1,"group_id":"","vlan":"","usb_device":""}`,
		},
		"GET /api/v1/registry/disk": {`{"free":-1,"total":1}`},
	} {
		r := p.spec.routes[pattern]
		for _, body := range bodies {
			if len(r.checkAnswer(200, "application/json",
				[]byte(`{"status":"OK","message":"","body":`+body+`}`))) == 0 {
				return fmt.Errorf("%s: %s would not have been seen", pattern, body)
			}
		}
	}
	var past []api.HistoryInstance
	if err := p.stage.clouds["up"].caller().Send(ctx, "GET", "/api/v1/vm/history?limit=1000", nil, &past); err != nil {
		return err
	}
	for _, i := range past {
		if err := ordered(i); err != nil {
			return err
		}
	}
	if len(past) == 0 {
		return errors.New("the history is empty")
	}
	return nil
}

// ordered reports whether an instance went through its states as it may: nothing but the end
// comes after a termination was asked for, and no reason for waiting outlives the waiting.
func ordered(i api.HistoryInstance) error {
	ending := false
	for _, t := range i.Transitions {
		if ending && t.State != "Terminated" && t.State != "Terminating" {
			return fmt.Errorf("instance %s was %s after its termination", i.InstanceID, t.State)
		}
		if t.State == "Started" && strings.Contains(t.Message, "no node") {
			return fmt.Errorf("instance %s was Started with the message %q", i.InstanceID, t.Message)
		}
		ending = ending || t.State == "Terminating"
	}
	if !ending {
		return fmt.Errorf("instance %s is gone without a termination: %v", i.InstanceID, i.Transitions)
	}
	return nil
}
