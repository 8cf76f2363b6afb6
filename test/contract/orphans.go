package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/controller"
	"github.com/buildyard/buildyard/internal/controller/record"
	"github.com/buildyard/buildyard/internal/rest/controllerrest"
	"github.com/buildyard/buildyard/internal/store"
	"github.com/buildyard/buildyard/internal/store/mem"
	"github.com/buildyard/buildyard/internal/transfer"
)

// undecided has two orphaned VMs on a node: they stay until an operator decides.
func undecided(ctx context.Context, p *caseRunner) error {
	c := p.stage.clouds["split"]
	h, err := c.join(ctx, "strange")
	if err != nil {
		return err
	}
	held := orphans(2)
	for range 6 { // more reports than the threshold
		if err := h.kept(ctx, held); err != nil {
			return err
		}
	}
	var list []api.OrphanedVM
	if err := c.caller().Send(ctx, "GET", "/api/v1/node/adopt?node=strange", nil, &list); err != nil ||
		len(list) != 2 || list[0].Fate != api.FateUndecided {
		return fmt.Errorf("unknown VMs %v, %w", list, err)
	}
	var status api.ControllerStatus
	// counted once a second
	for end := time.Now().Add(10 * time.Second); status.UnknownVMs < 2; time.Sleep(200 * time.Millisecond) {
		if err := c.caller().Send(ctx, "GET", "/api/v1/status", nil, &status); err != nil || time.Now().After(end) {
			return fmt.Errorf("status %v, %w", status, err)
		}
	}
	var done []api.OrphanOutcome
	ask := api.OrphanDecision{Node: "strange", Action: "remove", VMs: []string{held[0].VMID}}
	if err := c.caller().Send(ctx, "POST", "/api/v1/node/adopt", ask, &done); err != nil || len(done) != 1 ||
		done[0].Outcome != "removed" {
		return fmt.Errorf("removal %v, %w", done, err)
	}
	if gone, err := h.ordered(ctx, held); err != nil || !slices.Equal(gone, []string{held[0].VMID}) {
		return fmt.Errorf("removed are %v after the decision, %w", gone, err)
	}
	return h.leave(ctx)
}

// orphans are orphaned VMs.
func orphans(n int) (list []api.InventoryItem) {
	for i := range n {
		list = append(list, api.InventoryItem{VMID: fmt.Sprintf("aaaaaaaa-0000-4000-8000-%012d", i)})
	}
	return list
}

// ordered sends the inventory of the node once, describes the requested VMs, and returns those that
// it is ordered to remove.
func (h *fakeNode) ordered(ctx context.Context, held []api.InventoryItem) (gone []string, err error) {
	a, err := h.poll(ctx, held)
	if err != nil {
		return nil, err
	}
	if len(a.Describe) > 0 {
		var details []api.InventoryDetail
		for _, id := range a.Describe {
			details = append(details, api.InventoryDetail{ID: id, Status: api.InstanceStatus{Phase: api.PhaseRunning}})
		}
		if a, err = h.poll(ctx, held, details...); err != nil {
			return nil, err
		}
	}
	for _, o := range a.Orders {
		if o.Kind != api.OrderTerminate {
			return nil, fmt.Errorf("an order to %s %s", o.Kind, o.InstanceID)
		}
		gone = append(gone, o.InstanceID)
	}
	return gone, nil
}

// kept sends the inventory of the node; none of it may be ordered to be removed.
func (h *fakeNode) kept(ctx context.Context, held []api.InventoryItem) error {
	gone, err := h.ordered(ctx, held)
	if err == nil && len(gone) > 0 {
		err = fmt.Errorf("%v are to be removed", gone)
	}
	return err
}

// The minimum age of an orphaned VM, and number of reports about it, where the suite runs a
// separate controller. The cases cannot wait for 150 s and 30 reports: tests with a fake clock
// check that the controller has these.
const (
	orphanAge     = 2 * time.Second
	orphanReports = 5
)

// removedOrphans shows when orphaned VMs are removed automatically: after enough reports and
// time, and only while they are at most 20 % of all.
func removedOrphans(ctx context.Context, p *caseRunner) (err error) {
	c, done, err := p.stage.short(ctx)
	defer func() { err = errors.Join(err, done()) }()
	if err != nil {
		return err
	}
	h, err := c.join(ctx, "one")
	if err != nil {
		return err
	}
	if _, err := h.poll(ctx, nil); err != nil {
		return err
	}
	own, err := h.start(ctx, 5)
	if err != nil {
		return err
	}
	many, one := slices.Concat(own, orphans(2)), slices.Concat(own, orphans(1))
	for began := time.Now(); time.Since(began) < orphanAge+time.Second; time.Sleep(4 * pause) {
		if err := h.kept(ctx, many); err != nil {
			return fmt.Errorf("2 of 7 VMs are unknown: %w", err)
		}
	}
	if err := c.alarmed(ctx, 2, "2 of 7 VMs of node one are orphaned"); err != nil {
		return err
	}
	if err := h.kept(ctx, own); err != nil { // they are gone, and what was counted of them with them
		return err
	}
	reports, began := 0, time.Now()
	for {
		gone, err := h.ordered(ctx, one)
		took := time.Since(began)
		reports++
		switch {
		case err != nil:
			return err
		case slices.Equal(gone, []string{one[5].VMID}) && took >= orphanAge && reports >= orphanReports:
			return errors.Join(c.alarmed(ctx, 1, ""), h.kept(ctx, own))
		case len(gone) > 0 || took > patience:
			return fmt.Errorf("1 of 6 VMs is unknown, and removed are %v after %s and %d reports", gone, took, reports)
		}
		time.Sleep(2 * pause)
	}
}

// alarmed looks at the status until it has so many unknown VMs, and the alarm about them; "" is
// none. The disk of this machine may raise other alarms.
func (c *cloud) alarmed(ctx context.Context, unknown int, alarm string) error {
	var s api.ControllerStatus
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(pause) {
		if err := c.caller().Send(ctx, "GET", "/api/v1/status", nil, &s); err != nil {
			return err
		}
		about := slices.DeleteFunc(slices.Clone(s.ActiveAlarms),
			func(a api.Alarm) bool { return a.Name != api.AlarmOrphans })
		switch {
		case s.UnknownVMs != unknown || (alarm == "") != (len(about) == 0):
		case alarm == "" || strings.Contains(about[0].Message, alarm):
			return nil
		}
	}
	return fmt.Errorf("the status has %d unknown VMs and the alarms %q", s.UnknownVMs, s.Alarms)
}

// short runs a controller in this process, for what takes minutes in every other one. It has
// the registry of "split".
func (st *stage) short(ctx context.Context) (c *cloud, done func() error, err error) {
	ctx, stop := context.WithCancel(ctx)
	registry := st.clouds["split"].registry
	tables := record.NewTables(controllerrest.InstanceJSON)
	records, err := store.Open(ctx, mem.New(), store.Options{Tables: tables.All()})
	if err != nil {
		return nil, func() error { stop(); return nil }, err
	}
	ended := make(chan struct{})
	done = func() error {
		stop()
		<-ended
		return records.Close()
	}
	shelf, err := transfer.New(st.access.transfers(registry))
	if err != nil {
		return nil, func() error { stop(); return records.Close() }, err
	}
	k, err := controller.New(ctx, records, tables, controller.Options{
		Registry: shelf, RegistryAddress: registry, UnknownAge: orphanAge, UnknownReports: orphanReports,
		Version: "1.2.3-short",
	})
	if err != nil {
		close(ended)
		return nil, done, err
	}
	go func() {
		defer close(ended)
		_ = k.Run(ctx)
	}()
	var lc net.ListenConfig
	socket, err := lc.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, done, err
	}
	server := &http.Server{
		ReadHeaderTimeout: 10 * time.Second, ErrorLog: quiet,
		Handler: controllerrest.Handler(
			controllerrest.Options{Controller: k, RequestTimeout: time.Minute, Logger: slog.New(slog.DiscardHandler)}),
	}
	go func() { _ = server.Serve(socket) }()
	front, err := openProxy(ctx, st, "http://"+socket.Addr().String())
	inner := done
	done = func() error {
		if front != nil {
			front.close()
		}
		return errors.Join(server.Close(), inner())
	}
	c = &cloud{
		name: "short", stage: st, proxies: []*proxy{front},
		vars: vars{"template": st.clouds["split"].vars["template"], "token": k.Nodes.JoinToken()},
	}
	return c, done, err
}
