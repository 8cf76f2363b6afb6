package buildyard

import (
	"context"
	"fmt"
	"os"

	"github.com/buildyard/buildyard/internal/config"
	"github.com/buildyard/buildyard/internal/controller/events"
	"github.com/buildyard/buildyard/internal/rest"
)

// eventOptions returns the destinations of the controller's events: the event log of the registry and an
// endpoint. Without settings there are none.
func (s *ControllerService) eventOptions() (o events.Options, err error) {
	o.Actor = rest.ActorOf
	if o.Machine, err = os.Hostname(); err != nil {
		return o, fmt.Errorf("read the host name: %w", err)
	}
	if s.settings.Bool(config.EventLogging) {
		if o.File, err = s.eventLogTarget(); err != nil {
			return o, err
		}
	}
	if address := s.settings.String(config.EventLogURL); address != "" {
		push, err := events.NewHTTPSink(address, s.log)
		if err != nil {
			return o, fmt.Errorf("%s: %w", config.EventLogURL, err)
		}
		o.Push = push
	}
	return o, nil
}

// eventLogTarget returns the registry's event log.
func (s *ControllerService) eventLogTarget() (events.Target, error) {
	if s.registry != nil && s.settings.String(config.LocalRegistry) == "" {
		logs := s.registry.registry.Logs()
		return events.LogSink{Write: func(_ context.Context, rows [][]byte) error { return logs.AppendEvents(rows) }},
			nil
	}
	client, err := s.registryUpstream.client()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", config.Registry, err)
	}
	return events.LogSink{Write: func(ctx context.Context, rows [][]byte) error {
		return client.SendEvents(ctx, events.Array(rows))
	}}, nil
}
