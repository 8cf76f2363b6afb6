package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/test/rig"
)

// service is a host scanner that runs, with an empty catalog in the beginning.
type service struct {
	dir      string
	database string // that it uses
	address  string
	process  *rig.Process
}

// serve starts a service in a directory, with a database.
func (b *bench) serve(ctx context.Context, name, database string) (*service, error) {
	s := &service{dir: filepath.Join(b.Dir, name)}
	s.database = filepath.Join(s.dir, "vuln.db")
	if err := errors.Join(os.RemoveAll(s.dir), os.Mkdir(s.dir, 0o755)); err != nil {
		return nil, err
	}
	if err := put(database, s.database); err != nil {
		return nil, err
	}
	var err error
	if s.address, err = rig.FreeAddr(ctx); err != nil {
		return nil, err
	}
	config := filepath.Join(s.dir, "hostscan.yml")
	text := fmt.Sprintf("log-file: %s\nvuln-db-path: %s\nlisten-addr: %s\ndb-backend-path: %s\n", s.log(), s.database,
		s.address, s.inventoryFile())
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		return nil, err
	}
	s.process = rig.NewProcess(s.dir, "hostscan", b.programs.host, "serve", "-c", config)
	if err := s.process.Start(); err != nil {
		return nil, err
	}
	return s, s.await(ctx, time.Minute, func(api.HostStatus) bool { return true })
}

func (s *service) log() string           { return filepath.Join(s.dir, "log") }
func (s *service) inventoryFile() string { return filepath.Join(s.dir, "state", "catalogue.db") }

// end ends the service, if there is one.
func (s *service) end() error {
	if s == nil || s.process == nil {
		return nil
	}
	return s.process.End()
}

// ask sends a request and reads the body of the answer.
func (s *service) ask(ctx context.Context, method, path string, q url.Values, body any) error {
	r, err := http.NewRequestWithContext(ctx, method, "http://"+s.address+path+"?"+q.Encode(), nil)
	if err != nil {
		return err
	}
	w, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	defer w.Body.Close()
	raw, err := io.ReadAll(w.Body)
	if err != nil {
		return err
	}
	var a api.HostEnvelope
	if err := json.Unmarshal(raw, &a); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if a.Status != api.StatusOK {
		return fmt.Errorf("%s: %s", path, a.Error)
	}
	if body == nil {
		return nil
	}
	return json.Unmarshal(a.Body, body)
}

func (s *service) status(ctx context.Context) (out api.HostStatus, err error) {
	return out, s.ask(ctx, http.MethodGet, "/v1/status", nil, &out)
}

// glance is between two looks at a service that does something.
const glance = 20 * time.Millisecond

// await waits for a status.
func (s *service) await(ctx context.Context, most time.Duration, is func(api.HostStatus) bool) error {
	ctx, cancel := context.WithTimeoutCause(ctx, most, fmt.Errorf("it was waited for more than %s", most))
	defer cancel()
	for {
		st, err := s.status(ctx)
		if err == nil && is(st) {
			return nil
		}
		if !s.process.Running() {
			return fmt.Errorf("the service ended: %s", s.process.Tail())
		}
		if !rig.Pause(ctx, glance) {
			return errors.Join(context.Cause(ctx), err)
		}
	}
}

// scan scans a directory, "" for the whole host, and returns how long the caller waited.
func (s *service) scan(ctx context.Context, dir string, then url.Values) (time.Duration, api.HostScanResult, error) {
	var last api.HostScanResult
	q := url.Values{}
	maps.Copy(q, then)
	if dir != "" {
		q.Set("path", dir)
	}
	began := time.Now()
	if err := s.ask(ctx, http.MethodPost, "/v1/full-scan", q, nil); err != nil {
		return 0, last, err
	}
	err := s.await(ctx, limit, func(st api.HostStatus) bool {
		if st.State == api.HostRunningFull || st.LastScan == nil {
			return false
		}
		last = *st.LastScan
		return true
	})
	took := time.Since(began)
	if err == nil && (last.Error != "" || last.Cancelled) {
		err = fmt.Errorf("the full scan failed: %s", last.Error)
	}
	return took, last, err
}

// packages lists what came since a moment; the zero one is the beginning.
func (s *service) packages(ctx context.Context, since time.Time) (list []api.HostPackage, err error) {
	q := url.Values{}
	if !since.IsZero() {
		q.Set("fromTime", since.Format(time.RFC3339Nano))
	}
	return list, s.ask(ctx, http.MethodGet, "/v1/report/packages", q, &list)
}

// appears waits until a package is in the report of what came since a moment.
func (s *service) appears(ctx context.Context, name string, since time.Time) error {
	const patience = time.Minute
	ctx, cancel := context.WithTimeoutCause(ctx, patience,
		fmt.Errorf("%s is not in the report after %s", name, patience))
	defer cancel()
	for {
		list, err := s.packages(ctx, since)
		if err != nil {
			return errors.Join(context.Cause(ctx), err)
		}
		for _, p := range list {
			if p.Name == name {
				return nil
			}
		}
		if !rig.Pause(ctx, glance) {
			return context.Cause(ctx)
		}
	}
}
