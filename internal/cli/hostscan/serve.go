package hostscan

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/buildyard/buildyard/internal/cli"
	"github.com/buildyard/buildyard/internal/obs"
	"github.com/buildyard/buildyard/internal/rest/hostrest"
	"github.com/buildyard/buildyard/internal/rest/hostrest/push"
	"github.com/buildyard/buildyard/internal/rest/hostrest/webhook"
	"github.com/buildyard/buildyard/internal/scan/host"
)

// serveOptions are the flags of serve.
type serveOptions struct {
	*globals
	config string
	places defaultPaths
}

func serveCommand(g *globals) *cobra.Command {
	o := &serveOptions{globals: g, places: usualPlaces()}
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run the service that scans this host and answers the other commands",
		Long: `serve runs the scanner of this host until it is told to end. It goes on with what it did when it last
ran; the first time it waits to be told what to scan. As root it sees every file and is told of
each change by the system; without, it sees what its user may see.

Without --config it reads ` + "`hostscan.yml`" + ` in /etc/buildyard (in /Library/Application Support/buildyard on a
Mac), or of a user who is not root in buildyard in their configuration folder, if it is there.
Keys and what they are when nothing is said:

  log-level: info                  debug, info, warn or error
  log-to-file: true                false: the log goes to standard error
  log-file: ...                    at most 40 MB, in four files
  vuln-db-path: ...                the vulnerability database, which "imagescan db" builds too
  disable-auto-update: false       true: the database is not updated
  ignore-packages: [cpe:/a:apple:icloud:1.0]
  ignore-cves: []
  min-score: 0.0
  min-severity: low                low shows also what nobody has scored
  listen-addr: 127.0.0.1:8081      another than a loopback address asks for a token
  db-backend-path: ...             the catalogue of this host
  db-update-interval: 24h
  db-update-url: ""                the listing to update the database from; there is none of ours
  db-key: ""                       file with the public key that listings must be signed with
  token: ""                        that callers must show; or
  token-file: ""                   the file that has it, which is made when it is not there
  require-token: ""                changes: on a loopback address too, who starts, stops or resets
                                   scans must show a token; one is made, readable by its group
  allowed-hosts: []                names by which callers may ask, besides localhost and addresses
  exclude-paths: []                folders that are neither scanned nor watched
  webhook: ""                      address to which new packages and vulnerabilities are posted
  push-url: ""                     controller to which the findings are sent; node: that of the node here
  push-node: ""                    id of the node that this host is; that of the node here
  push-node-file: ...              in which buildnode keeps who the node here is
  push-key-id: ""                  user key that may report scans; the credential of the node here
  push-key-file: ""                file with its private key
  push-ca-file: ""                 authorities to trust instead of the system's
  push-interval: 1m                the least between two sends

SIGHUP reads the file again: log-level, what is ignored, the minimums, the token and allowed-hosts
count at once, the others at the next start.`,
		Example: `  sudo hostscan serve
  hostscan serve --config hostscan.yml
  hostscan serve --port 9000`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.portGiven = cmd.Flags().Changed("port")
			return o.run(cmd.Context())
		},
	}
	cmd.Flags().StringVarP(&o.config, "config", "c", "", "configuration file")
	_ = cmd.MarkFlagFilename("config", "yml", "yaml")
	return cmd
}

// settings reads the configuration. The port of the flag overrides that of the file.
func (o *serveOptions) settings(ctx context.Context) (settings, error) {
	s, err := readSettings(ctx, o.config, o.places)
	if err == nil && o.portGiven {
		name, _, _ := net.SplitHostPort(s.ListenAddr)
		s.ListenAddr = net.JoinHostPort(name, fmt.Sprint(o.port))
		if checkAddress(s.ListenAddr) != nil {
			err = fmt.Errorf("--port %d: must be from 0 to 65535", o.port)
		}
	}
	return s, err
}

// service is the daemon with its components.
type service struct {
	o      *serveOptions
	s      settings
	log    *serviceLog
	host   *host.Host
	rest   *hostrest.Server
	hook   *webhook.Hook // nil: no hook is configured
	push   *push.Sender  // nil: findings are sent to no controller
	socket net.Listener
}

func (o *serveOptions) run(ctx context.Context) error {
	if o.url != "" {
		return cli.Usage(errors.New("--url says whom to ask; serve listens on listen-addr of the configuration file"))
	}
	s, err := o.settings(ctx)
	if err != nil {
		return cli.Usage(err)
	}
	v := &service{o: o, s: s}
	if v.log, err = openJournal(s, o.Err); err != nil {
		return err
	}
	defer v.log.close()
	if err := v.open(ctx); err != nil {
		v.log.ErrorContext(ctx, "the service does not start", "error", err.Error())
		return err
	}
	defer func() {
		_ = v.socket.Close()
		_ = v.host.Close()
	}()
	v.announce(ctx)
	err = v.serve(ctx)
	v.log.InfoContext(ctx, "the service ends", "error", fmt.Sprint(err))
	return err
}

// open does everything that can fail before the service announces itself.
func (v *service) open(ctx context.Context) error {
	access, err := v.s.access(v.o.places)
	if err != nil {
		return cli.Usage(err)
	}
	ho, err := v.hostOptions()
	if err != nil {
		return cli.Usage(err)
	}
	if v.s.Webhook != "" {
		name, _ := os.Hostname()
		if v.hook, err = webhook.New(webhook.Options{URL: v.s.Webhook, Host: name, Log: v.log.Logger}); err != nil {
			return fmt.Errorf("webhook: %w", err)
		}
		ho.OnChange = v.hook.Enqueue
	}
	v.pushes(&ho)
	if v.host, err = host.Open(ho); err != nil {
		if errors.Is(err, host.ErrInUse) {
			return fmt.Errorf("another host scanner runs with the catalogue %s: stop it first, or give this one another db-backend-path", v.s.DBBackendPath)
		}
		return fmt.Errorf("db-backend-path: %w", err)
	}
	ro := hostrest.Options{Host: v.host, Version: obs.FullVersion(), Access: access, Expose: obs.Metrics, Log: v.log.Logger}
	if v.hook != nil {
		ro.Metrics = v.hook.Families()
	}
	if v.push != nil {
		v.push.Of(v.host)
		ro.Push, ro.Metrics = v.push.Status, append(ro.Metrics, v.push.Families()...)
	}
	if v.rest, err = hostrest.New(ro); err != nil {
		err = cli.Usage(err)
	} else {
		v.socket, err = listen(ctx, v.s.ListenAddr)
	}
	if err != nil {
		_ = v.host.Close()
	}
	return err
}

func (v *service) hostOptions() (o host.Options, err error) {
	o = host.Options{Catalogue: v.s.DBBackendPath, Leave: v.s.ExcludePaths, Log: v.log.Logger, Calm: &host.GCTuner{}}
	if o.Rules, err = v.s.rules(); err != nil {
		return o, err
	}
	if o.Database, err = v.s.database(); err != nil {
		return o, err
	}
	if filepath.Dir(o.Catalogue) == v.o.places.State {
		o.Leave = append(slices.Clip(o.Leave), v.o.places.State) // which belongs to the service
	}
	return o, os.MkdirAll(filepath.Dir(o.Database.Path), 0o755)
}

func listen(ctx context.Context, addr string) (net.Listener, error) {
	var c net.ListenConfig
	l, err := c.Listen(ctx, "tcp", addr)
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, fmt.Errorf("another program listens on %s, maybe another host scanner: stop it, or set another listen-addr (or -p)", addr)
	case err != nil:
		return nil, fmt.Errorf("listen-addr: %w", err)
	}
	return l, nil
}

// announce logs the address of the service.
func (v *service) announce(ctx context.Context) {
	at := v.socket.Addr().String()
	v.log.InfoContext(ctx, "service started", "version", obs.FullVersion(), "address", at, "catalogue", v.s.DBBackendPath, "database", v.s.VulnDBPath)
	_, _ = fmt.Fprintf(v.o.Err, "hostscan %s listens on http://%s\n", obs.FullVersion(), at)
	if v.s.LogToFile {
		_, _ = fmt.Fprintf(v.o.Err, "Its log is %s\n", cli.Plain(v.s.LogFile))
	}
	if !hostrest.Loopback(v.s.ListenAddr) {
		v.log.WarnContext(ctx, "the token and what is answered are not encrypted on their way: let a proxy with TLS stand before the service where others can listen in")
	}
}

// serve works until ctx ends or something fails.
func (v *service) serve(ctx context.Context) error {
	// The hook continues for a moment after the scanner has ended, to send all events.
	hooked, unhook := context.WithCancel(context.WithoutCancel(ctx))
	defer unhook()
	var last errgroup.Group
	if v.hook != nil {
		last.Go(func() error { v.hook.Run(hooked); return nil })
	}
	all, within := errgroup.WithContext(ctx)
	all.Go(func() error { return v.host.Run(within) })
	all.Go(func() error { return v.rest.Serve(within, v.socket) })
	all.Go(func() error { v.followSignals(within); return nil })
	if v.push != nil {
		all.Go(func() error { v.push.Run(within); return nil })
	}
	err := all.Wait()
	unhook()
	_ = last.Wait()
	return err
}

// followSignals reads the configuration again on SIGHUP.
func (v *service) followSignals(ctx context.Context) {
	hup := make(chan os.Signal, 1)
	signal.Notify(hup, syscall.SIGHUP)
	defer signal.Stop(hup)
	for {
		select {
		case <-ctx.Done():
			return
		case <-hup:
			if err := v.reload(ctx); err != nil {
				v.log.ErrorContext(ctx, "the configuration stays as it was", "error", err.Error())
			}
		}
	}
}

// reload applies the settings that need no restart. On an error nothing changes.
func (v *service) reload(ctx context.Context) error {
	s, err := v.o.settings(ctx)
	if err != nil {
		return err
	}
	waits := later(v.s, s)
	s.ListenAddr = v.s.ListenAddr // the service still listens on that one
	rules, err := s.rules()
	if err != nil {
		return err
	}
	level, err := s.level()
	if err != nil {
		return err
	}
	access, err := s.access(v.o.places)
	if err != nil {
		return err
	}
	if err := v.host.SetRules(rules); err != nil {
		return err
	}
	if err := v.rest.SetAccess(access); err != nil {
		return err
	}
	v.log.level.Set(level)
	v.log.InfoContext(ctx, "the configuration was read again", "next_start", strings.Join(waits, " "))
	return nil
}
