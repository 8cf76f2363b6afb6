package buildyard

import (
	"context"
	"fmt"
	"os"

	"github.com/buildyard/buildyard/internal/config"
	"github.com/buildyard/buildyard/internal/controller"
	"github.com/buildyard/buildyard/internal/notify"
	"github.com/buildyard/buildyard/internal/rest"
)

// events returns the destinations of the controller's events: the event log of the registry and an
// endpoint. There are none unless set.
func (s *ControllerService) events() (o controller.EventOptions, err error) {
	o.Actor = rest.ActorOf
	if o.Machine, err = os.Hostname(); err != nil {
		return o, fmt.Errorf("name of this machine: %w", err)
	}
	if s.settings.Bool(config.EventLogging) {
		if o.File, err = s.eventFile(); err != nil {
			return o, err
		}
	}
	if address := s.settings.String(config.EventLogURL); address != "" {
		push, err := notify.NewPush(address, s.log)
		if err != nil {
			return o, fmt.Errorf("%s: %w", config.EventLogURL, err)
		}
		o.Push = push
	}
	return o, nil
}

// eventFile returns the registry's log of events.
func (s *ControllerService) eventFile() (controller.EventTarget, error) {
	if s.registry != nil && s.settings.String(config.LocalRegistry) == "" {
		logs := s.registry.core.Logs()
		return notify.LogSink{Write: func(_ context.Context, rows [][]byte) error { return logs.Events(rows) }}, nil
	}
	client, err := s.upstream.client()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", config.Registry, err)
	}
	return notify.LogSink{Write: func(ctx context.Context, rows [][]byte) error {
		return client.Events(ctx, notify.Array(rows))
	}}, nil
}
