package main

import (
	"context"
	"errors"
	"path/filepath"
	"time"

	"github.com/google/uuid"

	"github.com/buildyard/buildyard/internal/hv"
	"github.com/buildyard/buildyard/internal/hv/tart"
	"github.com/buildyard/buildyard/test/bench/row"
	"github.com/buildyard/buildyard/test/bench/runner"
	"github.com/buildyard/buildyard/test/rig"
)

const (
	guestID   = "guest"
	guestPort = 7000
)

// guest is a VM that the driver of this process runs, with a port rule.
type guest struct {
	driver *tart.Driver
	home   string // TART_HOME
	vm     hv.VM
}

// measureGuest measures what needs one running VM.
func (b *bench) measureGuest(ctx context.Context) (err error) {
	g, err := b.startGuest(ctx)
	if g != nil {
		defer func() { err = errors.Join(err, g.close(ctx)) }()
	}
	if err != nil {
		return err
	}
	part := func(do func(context.Context, *guest) error, rows ...string) runner.Part {
		return runner.Part{Rows: rows, Do: func(ctx context.Context) error { return do(ctx, g) }}
	}
	b.MeasureParts(ctx, part(b.measureExec, rowExec), part(b.measureForward, rowForward))
	return nil
}

// startGuest starts the VM. A returned guest must be closed, also after an error.
func (b *bench) startGuest(ctx context.Context) (*guest, error) {
	dir := filepath.Join(b.mac.dir, "guest")
	g := &guest{home: filepath.Join(dir, "tart")}
	if err := rig.MakeDir(g.home); err != nil {
		return nil, err
	}
	var err error
	g.driver, err = tart.Open(ctx, tart.Options{
		Home: g.home, LeasesFile: filepath.Join(dir, "dhcpd_leases"),
		Forwarder: []string{b.Programs.Path("buildnode"), "forward"},
	})
	if err != nil {
		return nil, err
	}
	spec, err := b.mac.spec(guestID, uuid.NewString())
	if err != nil {
		return g, err
	}
	spec.NeedNetwork = true
	spec.Ports = []hv.PortRule{{Name: "stream", GuestPort: guestPort, HostIP: "127.0.0.1", Protocol: "tcp"}}
	g.vm, err = g.driver.Start(ctx, spec)
	if err == nil {
		b.Say("started a guest")
	}
	return g, err
}

// close removes the VM.
func (g *guest) close(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endLimit)
	defer cancel()
	return errors.Join(g.driver.Delete(ctx, guestID), g.driver.Close())
}

// command is tart exec in the guest.
func (g *guest) command(ctx context.Context, args ...string) error {
	m := fakeMac{home: g.home}
	return m.tart(ctx, append([]string{"exec", "-i", guestID}, args...)...)
}

// measureExec compares commands by the driver with commands by tart alone.
func (b *bench) measureExec(ctx context.Context, g *guest) error {
	const program = "/usr/bin/true"
	var all pairs
	for i := range minExecs {
		ours, alone, err := inTurns(i,
			timed(func() error {
				_, err := g.driver.Exec(ctx, guestID, hv.Command{Path: program, Timeout: time.Minute})
				return err
			}),
			timed(func() error { return g.command(ctx, program) }))
		if err != nil {
			return err
		}
		all.add(ours, alone)
		b.Add(rowExec, runner.MS(ours-alone))
	}
	b.Note(rowExec, "%s by tart alone; the driver at most %.1f ms", &all, row.Quantile(all.first, 1))
	b.Say("commands: %s by tart alone", &all)
	return nil
}

// timed makes an operation of work.
func timed(work func() error) operation {
	return func() (time.Duration, error) {
		began := time.Now()
		err := work()
		return time.Since(began), err
	}
}
