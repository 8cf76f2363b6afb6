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
	"github.com/buildyard/buildyard/internal/scan/match/ignore"
)

// serveOptions are the flags of serve.
type serveOptions struct {
	*globals
	configPath string
	paths      defaultPaths
}

func serveCommand(g *globals) *cobra.Command {
	o := &serveOptions{globals: g, paths: newDefaultPaths()}
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run the host scanner service",
		Long: `serve runs the host scanner until it is stopped. It resumes the scan state of the last run; initially it
waits for a scan command. As root it reads every file and receives all change notifications of the
system; otherwise it reads what its user may read.

Without --config it reads ` + "`hostscan.yml`" + ` in /etc/buildyard (in /Library/Application Support/buildyard on a
Mac), or for other users than root buildyard/hostscan.yml in their configuration directory, if it
exists. Keys with their defaults:

  log-level: info                  debug, info, warn or error
  log-to-file: true                false: the log goes to standard error
  log-file: ...                    at most 40 MiB, in four files
  vuln-db-path: ...                the vulnerability database, shared with "imagescan db"
  disable-auto-update: false       true: no database updates
  ignore-packages: [cpe:/a:apple:icloud:1.0]
  ignore-cves: []
  min-score: 0.0
  min-severity: low                low includes findings without a score
  listen-addr: 127.0.0.1:8081      another address than loopback requires a token
  db-backend-path: ...             the package inventory of this host
  db-update-interval: 24h
  db-update-url: ""                URL of the database listing; not set: no updates
  db-key: ""                       public key file for the signatures of listings
  token: ""                        token of the callers, or
  token-file: ""                   file with the token, created if missing
  require-token: ""                changes: on loopback too, starting, stopping or resetting scans
                                   requires a token; one is created, readable by its group
  allowed-hosts: []                additional host names in requests, besides localhost and addresses
  ignore: []                       rules with id, package or path, reason, and expires
  exclude-paths: []                directories that are neither scanned nor watched, or patterns of them
  webhook: ""                      URL to which new packages and vulnerabilities are posted
  push-url: ""                     controller that receives findings; node: that of the node on this host
  push-node: ""                    node ID of this host (default: from push-node-file)
  push-node-file: ...              identity file of buildnode on this host
  push-key-id: ""                  API key with the right to report scans (default: the node credential)
  push-key-file: ""                private key file of that API key
  push-ca-file: ""                 CAs to trust instead of the system's
  push-interval: 1m                minimum interval between two sends

SIGHUP reloads the file: log-level, the ignored and minimum values, the token and allowed-hosts apply
immediately, other keys at the next start.`,
		Example: `  sudo hostscan serve
  hostscan serve --config hostscan.yml
  hostscan serve --port 9000`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.portGiven = cmd.Flags().Changed("port")
			return o.run(cmd.Context())
		},
	}
	cmd.Flags().StringVarP(&o.configPath, "config", "c", "", "configuration file")
	_ = cmd.MarkFlagFilename("config", "yml", "yaml")
	return cmd
}

// settings reads the configuration. The port of the flag overrides that of the file.
func (o *serveOptions) settings(ctx context.Context) (settings, error) {
	s, err := readSettings(ctx, o.configPath, o.paths)
	if err == nil && o.portGiven {
		name, _, _ := net.SplitHostPort(s.ListenAddr)
		s.ListenAddr = net.JoinHostPort(name, fmt.Sprint(o.port))
		if checkAddress(s.ListenAddr) != nil {
			err = fmt.Errorf("invalid --port %d: want 0 to 65535", o.port)
		}
	}
	return s, err
}

// service is the daemon with its components.
type service struct {
	opts      *serveOptions
	settings  settings
	log       *serviceLog
	host      *host.Host
	apiServer *hostrest.Server
	webhook   *webhook.Hook // nil: no webhook
	push      *push.Sender  // nil: findings are not sent
	listener  net.Listener
}

func (o *serveOptions) run(ctx context.Context) error {
	if o.url != "" {
		return cli.Usage(errors.New("--url does not apply to serve; set listen-addr in the configuration file"))
	}
	s, err := o.settings(ctx)
	if err != nil {
		return cli.Usage(err)
	}
	v := &service{opts: o, settings: s}
	if v.log, err = openServiceLog(s, o.Err); err != nil {
		return err
	}
	defer v.log.close()
	if err := v.open(ctx); err != nil {
		v.log.ErrorContext(ctx, "start service failed", "error", err.Error())
		return err
	}
	defer func() {
		_ = v.listener.Close()
		_ = v.host.Close()
	}()
	v.announce(ctx)
	err = v.serve(ctx)
	if err != nil {
		v.log.ErrorContext(ctx, "service failed", "error", err.Error())
	} else {
		v.log.InfoContext(ctx, "service stopped")
	}
	return err
}

// open does everything that can fail before the service announces itself.
func (v *service) open(ctx context.Context) error {
	access, err := v.settings.accessRules(v.opts.paths)
	if err != nil {
		return cli.Usage(err)
	}
	ho, err := v.hostOptions()
	if err != nil {
		return cli.Usage(err)
	}
	if v.settings.Webhook != "" {
		name, _ := os.Hostname()
		if v.webhook, err = webhook.New(
			webhook.Options{URL: v.settings.Webhook, Host: name, Log: v.log.Logger}); err != nil {
			return fmt.Errorf("webhook: %w", err)
		}
		ho.OnChange = v.webhook.Enqueue
	}
	v.addPushSender(&ho)
	if v.host, err = host.Open(ho); err != nil {
		if errors.Is(err, host.ErrInUse) {
			return fmt.Errorf("another host scanner uses the inventory %s; stop it, or set another db-backend-path",
				v.settings.DBBackendPath)
		}
		return fmt.Errorf("db-backend-path: %w", err)
	}
	ro := hostrest.Options{
		Host: v.host, Version: obs.FullVersion(), Access: access, NewMetricsHandler: obs.Metrics,
		Log: v.log.Logger,
	}
	if v.webhook != nil {
		ro.Metrics = v.webhook.Families()
	}
	if v.push != nil {
		v.push.SetHost(v.host)
		ro.PushStatus, ro.Metrics = v.push.Status, append(ro.Metrics, v.push.Families()...)
	}
	if v.apiServer, err = hostrest.New(ro); err != nil {
		err = cli.Usage(err)
	} else {
		v.listener, err = listen(ctx, v.settings.ListenAddr)
	}
	if err != nil {
		_ = v.host.Close()
	}
	return err
}

func (v *service) hostOptions() (o host.Options, err error) {
	o = host.Options{
		InventoryPath: v.settings.DBBackendPath, Exclude: v.settings.ExcludePaths, Log: v.log.Logger,
		GC: &host.GCTuner{},
	}
	if o.Rules, err = v.settings.matchRules(); err != nil {
		return o, err
	}
	if o.Database, err = v.settings.databaseOptions(); err != nil {
		return o, err
	}
	if filepath.Dir(o.InventoryPath) == v.opts.paths.State {
		o.Exclude = append(slices.Clip(o.Exclude), v.opts.paths.State) // the service's own files
	}
	return o, os.MkdirAll(filepath.Dir(o.Database.Path), 0o755)
}

func listen(ctx context.Context, addr string) (net.Listener, error) {
	var c net.ListenConfig
	l, err := c.Listen(ctx, "tcp", addr)
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return nil,
			fmt.Errorf(
				"address %s in use, possibly by another host scanner; stop it, or set another listen-addr (or -p)",
				addr)
	case err != nil:
		return nil, fmt.Errorf("listen-addr: %w", err)
	}
	return l, nil
}

// announce logs the address of the service.
func (v *service) announce(ctx context.Context) {
	at := v.listener.Addr().String()
	v.warnExpiredRules(ctx, v.settings)
	v.log.InfoContext(ctx, "service started", "version", obs.FullVersion(), "address", at, "inventory",
		v.settings.DBBackendPath, "database", v.settings.VulnDBPath)
	_, _ = fmt.Fprintf(v.opts.Err, "hostscan %s listens on http://%s\n", obs.FullVersion(), at)
	if v.settings.LogToFile {
		_, _ = fmt.Fprintf(v.opts.Err, "Log file: %s\n", cli.EscapeName(v.settings.LogFile))
	}
	if !hostrest.IsLoopbackAddress(v.settings.ListenAddr) {
		v.log.WarnContext(ctx,
			"token and responses are not encrypted; use a TLS proxy in front of the service on untrusted networks")
	}
}

// serve works until ctx ends or something fails.
func (v *service) serve(ctx context.Context) error {
	// The webhook continues for a moment after the scanner has stopped, to send all events.
	hooked, unhook := context.WithCancel(context.WithoutCancel(ctx))
	defer unhook()
	var last errgroup.Group
	if v.webhook != nil {
		last.Go(func() error { v.webhook.Run(hooked); return nil })
	}
	all, within := errgroup.WithContext(ctx)
	all.Go(func() error { return v.host.Run(within) })
	all.Go(func() error { return v.apiServer.Serve(within, v.listener) })
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
				v.log.ErrorContext(ctx, "reload configuration failed", "error", err.Error())
			}
		}
	}
}

// warnExpiredRules logs which ignore rules no longer apply.
func (v *service) warnExpiredRules(ctx context.Context, s settings) {
	rules, err := ignore.Compile(s.Ignore, nil)
	if err != nil {
		return // the settings were refused
	}
	for _, w := range rules.Warnings() {
		v.log.WarnContext(ctx, "an ignore rule no longer applies", "rule", w)
	}
}

// reload applies the settings that need no restart. On an error nothing changes.
func (v *service) reload(ctx context.Context) error {
	s, err := v.opts.settings(ctx)
	if err != nil {
		return err
	}
	waits := restartKeys(v.settings, s)
	s.ListenAddr = v.settings.ListenAddr // the listener stays open
	rules, err := s.matchRules()
	if err != nil {
		return err
	}
	level, err := s.logLevel()
	if err != nil {
		return err
	}
	access, err := s.accessRules(v.opts.paths)
	if err != nil {
		return err
	}
	if err := v.host.SetRules(rules); err != nil {
		return err
	}
	if err := v.apiServer.SetAccess(access); err != nil {
		return err
	}
	v.log.level.Set(level)
	v.warnExpiredRules(ctx, s)
	v.log.InfoContext(ctx, "configuration reloaded", "next_start", strings.Join(waits, " "))
	return nil
}
