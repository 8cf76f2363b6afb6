package agent

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/buildyard/buildyard/internal/hv"
)

// licensedDriver is a driver of which nothing but the license is used.
type licensedDriver struct {
	hv.Driver

	mu      sync.Mutex // guards the fields below
	license hv.License
	err     error
}

func (d *licensedDriver) ReadLicense(context.Context) (hv.License, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.license, d.err
}

func (d *licensedDriver) set(license hv.License, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.license, d.err = license, err
}

// TestLicenseIsReadAgain: what a node reports follows the license of its hypervisor; a failure to read it
// changes nothing.
func TestLicenseIsReadAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &licensedDriver{}
		a := New(Options{Driver: d, Logger: slog.New(slog.DiscardHandler)})
		valid, invalid := hv.License{Kind: "k", Expires: "2099-01-31"}, hv.License{Kind: "k", Expires: "1970-01-01"}
		a.hypervisorLicense = valid
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- a.licenseLoop(ctx) }()
		for _, step := range []struct {
			license hv.License
			err     error
			want    string
		}{
			{valid, nil, "2099-01-31"},
			{invalid, nil, "1970-01-01"},
			{hv.License{}, errors.New("no answer"), "1970-01-01"},
			{valid, nil, "2099-01-31"},
		} {
			d.set(step.license, step.err)
			time.Sleep(licenseInterval)
			synctest.Wait()
			if kind, expires := a.licenseInfo(); kind != "k" || expires != step.want {
				t.Errorf("after %+v, %v: %s until %s, want %s", step.license, step.err, kind, expires, step.want)
			}
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}
