package buildyard

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/auth"
	"github.com/buildyard/buildyard/internal/auth/authstore"
	"github.com/buildyard/buildyard/internal/cli/storecommand"
	"github.com/buildyard/buildyard/internal/config"
	"github.com/buildyard/buildyard/internal/controller"
	"github.com/buildyard/buildyard/internal/controller/admission"
	"github.com/buildyard/buildyard/internal/controller/alarms"
	"github.com/buildyard/buildyard/internal/controller/console"
	"github.com/buildyard/buildyard/internal/controller/jointokens"
	"github.com/buildyard/buildyard/internal/controller/nodescans"
	"github.com/buildyard/buildyard/internal/controller/record"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/license"
	"github.com/buildyard/buildyard/internal/obs"
	"github.com/buildyard/buildyard/internal/periodic"
	"github.com/buildyard/buildyard/internal/release"
	"github.com/buildyard/buildyard/internal/rest"
	"github.com/buildyard/buildyard/internal/rest/controllerrest"
	"github.com/buildyard/buildyard/internal/sched"
	"github.com/buildyard/buildyard/internal/steadyclock"
	"github.com/buildyard/buildyard/internal/store"
	"github.com/buildyard/buildyard/internal/store/backup"
	"github.com/buildyard/buildyard/internal/store/etcd"
)

// ControllerService is the controller, alone or with a registry in the same
// process. ParseFlags, Open, Run and Close come in this order.
type ControllerService struct {
	Stderr       io.Writer // of the log
	WithRegistry bool      // run a registry too, regardless of the settings

	metricsPort
	settings         *config.Values
	logOutput        *logOutput
	log              *slog.Logger
	apiTLS           *portTLS
	listener         *listener
	nodePort         *nodePort // nil: no separate node interface
	registry         *RegistryService
	registryUpstream *upstream
	access           *access
	auditTrail       *rest.AuditTrail     // nil without authentication or without an event log
	leaderJobs       []periodic.Job       // that only the reconciling replica runs
	registryTokens   *auth.RegistryTokens // of nodes, for the registry; nil: none can be issued
	backend          *etcd.Backend
	store            *store.Store
	controller       *controller.Controller
	license          *license.File
	agentPackages    *release.Repository
	requestMeter     *rest.Meter   // nil: requests are not counted
	authRefusals     chan struct{} // receives a value for each refused caller, unless it is full
}

// ParseFlags reads the settings from flags, environment and file.
func (s *ControllerService) ParseFlags(src config.Sources) error {
	var err error
	if s.settings, err = config.Load(config.ControllerTable, src); err != nil {
		return err
	}
	if err := checkAccess(s.settings, config.ControllerAuthorization, config.RegistryAuthorization); err != nil {
		return err
	}
	if err := checkTLS(s.settings, config.UseHTTPS, config.UseQueueTLS); err != nil {
		return err
	}
	if err := checkNodePort(s.settings); err != nil {
		return err
	}
	if err := checkStandalone(s.settings); err != nil {
		return err
	}
	if _, err := storecommand.ClusterOptions(s.settings, nil); err != nil {
		return err
	}
	if s.logOutput, err = openLog(s.Stderr, s.settings); err != nil {
		return err
	}
	s.log, err = s.logOutput.logger(s.settings.String(config.LogLevel), "controller")
	return err
}

// checkStandalone refuses a kind of store that the endpoints contradict.
func checkStandalone(v *config.Values) error {
	text, external := v.String(config.Standalone), v.List(config.EtcdEndpoints) != nil
	if text == "" {
		return nil
	}
	embedded, _ := strconv.ParseBool(text) // its form was checked
	switch {
	case embedded && external:
		return fmt.Errorf("%s=%s requires the embedded store, but %s sets an external etcd; remove one of them",
			config.Standalone, text, config.EtcdEndpoints)
	case !embedded && !external:
		return fmt.Errorf("%s=%s requires an external etcd; set its endpoints with %s", config.Standalone, text,
			config.EtcdEndpoints)
	}
	return nil
}

// Open binds the addresses and opens the store. Close closes what Open opened, also when it failed.
func (s *ControllerService) Open(ctx context.Context) error {
	var err error
	if s.license, err = license.Open(license.Options{
		Product: license.Controller, Path: s.settings.String(config.LicenseFile),
		AuthorityFile: s.settings.String(config.LicenseAuthority), Logger: s.log,
	}); err != nil {
		return err
	}
	if s.apiTLS, err = openPortTLS(apiEdge, s.settings, s.log); err != nil {
		return err
	}
	if s.listener, err = listen(ctx, "the controller ("+config.ListenAddr+")", s.settings.String(config.ListenAddr),
		s.log); err != nil {
		return err
	}
	s.listener.enableTLS(s.apiTLS)
	s.listener.enableProtection(s.settings, s.log)
	s.listener.hostCheck.CrossOrigin = s.settings.Bool(config.AllowCORS)
	if s.nodePort, err = openNodePort(ctx, s.settings, s.log); err != nil {
		return err
	}
	if s.WithRegistry || s.settings.Bool(config.RunRegistry) {
		s.registry = &RegistryService{Stderr: s.Stderr, registryTLS: s.apiTLS}
		if err := s.registry.configureEmbedded(s.settings, s.logOutput); err != nil {
			return err
		}
		if err := s.registry.Open(ctx); err != nil {
			return err
		}
	}
	tables, records := record.NewTables(controllerrest.InstanceJSON), authstore.NewTables()
	if err := s.openStore(ctx, tables, records); err != nil {
		return err
	}
	if err := s.openAccess(ctx, records); err != nil {
		return err
	}
	if err := s.openCore(ctx, tables); err != nil {
		return err
	}
	return s.openMetrics(ctx)
}

func (s *ControllerService) openStore(ctx context.Context, tables *record.Tables, records *authstore.Tables) error {
	dir := s.settings.String(config.DataDir)
	if err := openDataDir(dir); err != nil {
		return err
	}
	if err := etcd.RemoveTemporaryBackups(dir); err != nil {
		s.log.Warn("unfinished backup not removed", "error", err)
	}
	replica := ""
	cluster, err := storecommand.ClusterOptions(s.settings, s.log)
	if err != nil {
		return err
	}
	if len(cluster.Endpoints) > 0 {
		s.backend, err = etcd.ConnectExternal(ctx, cluster)
	} else {
		replica = "embedded" // a single process, across restarts
		s.backend, err = etcd.StartEmbedded(ctx, etcd.EmbeddedOptions{
			Dir: storecommand.EmbeddedDir(dir), Logger: s.log,
		})
	}
	if err != nil {
		return s.withRemedy(err)
	}
	s.store, err = store.Open(ctx, s.backend, store.Options{
		Logger: s.log, Replica: replica, Tables: slices.Concat(tables.All(), records.All()), Expendable: tables.History,
	})
	return err
}

func (s *ControllerService) openCore(ctx context.Context, tables *record.Tables) error {
	address, local := s.registryAddresses()
	if local == "" {
		return fmt.Errorf("%s is not set; set the URL of the registry, or run one with `buildyard up`", config.Registry)
	}
	var err error
	if s.hasOwnRegistry() {
		s.registryUpstream = localUpstream(s.registry.pipe, s.log)
	} else if s.registryUpstream, err = openUpstream(local, s.registry != nil && local == s.registry.localURL(),
		s.settings,
		s.log); err != nil {
		return err
	}
	shelf, err := s.ownRegistry()
	if err != nil {
		return err
	}
	if err := s.logOutput.writeRemote(s.registryUpstream); err != nil {
		return err
	}
	macs, err := s.macRange()
	if err != nil {
		return err
	}
	events, err := s.eventOptions()
	if err != nil {
		return err
	}
	cloud, err := s.cloudOptions()
	if err != nil {
		return err
	}
	s.agentPackages = release.NewRepository(packagesDir(s.settings), s.log)
	s.controller, err = controller.New(ctx, s.store, tables, controller.Options{
		Now:      steadyclock.New().Now,
		Events:   events,
		Registry: shelf, RegistryAddress: address,
		PushRegistry: strings.TrimSuffix(s.settings.String(config.PushRegistry), "/"),
		VMNamePrefix: s.settings.String(config.VMNamePrefix),
		DiskAlarm:    s.settings.Size(config.DiskAlarm),
		Scheduler: sched.Options{
			BinPack:      s.settings.String(config.Placement) == "fit",
			LocalityWait: s.settings.Duration(config.LocalityWait), LocalityBytes: s.settings.Size(config.LocalitySize),
		},
		Limits: admission.Limits{
			Waiting: s.settings.Int(config.MaxWaiting), WaitingSize: s.settings.Size(config.MaxWaitingSize),
			ScriptsSize:     s.settings.Size(config.MaxScriptsSize),
			IdempotencyKeys: s.settings.Int(config.MaxIdempotencyKeys),
		},
		KeepTerminated:  historyRetention(s.settings.Duration(config.InstanceTimeOut)),
		NodeTimeout:     s.settings.Duration(config.NodeActiveTimeout),
		InstanceTimeout: s.settings.Duration(config.InstanceActiveTimeout),
		StartTimeout:    s.settings.Duration(config.StartTimeout),
		PullTimeout:     s.settings.Duration(config.PullTimeout),
		PushTimeout:     s.settings.Duration(config.PushTimeout),
		UnknownReports:  s.settings.Int(config.UnknownVMThreshold),
		Logger:          s.log, Version: obs.FullVersion(),
		PauseRegistry: shelf.PauseGC, Rights: rightsQueryOf(s.access, shelf), Files: shelf,
		Permits:    placementPolicyOf(s.access),
		License:    s.license,
		ManageMACs: s.settings.Bool(config.ManageMACs), MACRange: macs,
		CentralLog: s.settings.Bool(config.CentralLogging), DistributePulls: s.settings.Int(config.DistributeAtOnce),
		Packages: s.agentPackages, NoNodeUpgrades: s.settings.Bool(config.NoNodeUpgrades),
		SaveStopFallback: s.settings.String(config.SaveFallback) == config.SaveFallbackStop,
		LeaderJobs:       s.leaderJobs, Alarms: []alarms.Source{s.exposureAlarms, s.diskAlarms, s.certificateAlarms},
		JoinTokens: s.joinTokenOptions(), Cloud: cloud,
	})
	return err
}

// joinTokenOptions keeps the permanent join token in the data directory.
func (s *ControllerService) joinTokenOptions() jointokens.Options {
	dir := s.settings.String(config.DataDir)
	stored, err := readStoredToken(dir)
	if err != nil {
		stored = "" // it is created at the first start, or another replica has it
	}
	return jointokens.Options{
		PermanentToken: stored, StorePermanent: func(token string) error { return writeToken(dir, token) },
	}
}

// macRange returns the range of managed MAC addresses, whose form was checked.
func (s *ControllerService) macRange() (farm.MACRange, error) {
	text := s.settings.String(config.MACRange)
	if text == "" {
		if s.settings.Bool(config.ManageMACs) {
			return farm.MACRange{}, fmt.Errorf("%s requires %s (<FROM>-<TO>)", config.ManageMACs, config.MACRange)
		}
		return farm.MACRange{}, nil
	}
	return farm.ParseMACRange(text)
}

// registryAPI is a registry as the controller calls it, with what maintenance mode needs.
type registryAPI interface {
	controller.Registry
	nodescans.FileStore
	PauseGC(ctx context.Context, length time.Duration) error
	CallerRights(ctx context.Context, template string) (*api.CallerRights, error)
}

// hasOwnRegistry reports whether the controller uses the registry in its process.
func (s *ControllerService) hasOwnRegistry() bool {
	return s.registry != nil && s.settings.String(config.LocalRegistry) == ""
}

// ownRegistry returns the registry of the controller: the one in this process, unless another address is
// set.
func (s *ControllerService) ownRegistry() (registryAPI, error) {
	if s.hasOwnRegistry() {
		return localRegistry{registry: s.registry.registry, currentRules: s.registry.access.Rules}, nil
	}
	client, err := s.registryUpstream.client()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", config.Registry, err)
	}
	return &registryCalls{client: client, address: s.registryUpstream.address}, nil
}

// registryAddresses returns the registry's address for nodes and clients, and the
// one that the controller itself uses.
func (s *ControllerService) registryAddresses() (public, local string) {
	public, local = s.settings.String(config.Registry), s.settings.String(config.LocalRegistry)
	if s.registry != nil {
		if local == "" {
			local = s.registry.URL()
		}
		if public == "" {
			public = s.registry.publicURL()
		}
	}
	if local == "" {
		local = public
	}
	return strings.TrimSuffix(public, "/"), strings.TrimSuffix(local, "/")
}

// URL returns the controller's address for clients on this machine, after Open.
func (s *ControllerService) URL() string { return s.listener.url() }

// RegistryURL returns the address of the registry for clients on this machine.
func (s *ControllerService) RegistryURL() string {
	if s.hasOwnRegistry() {
		return s.registry.URL()
	}
	return s.registryUpstream.address
}

// JoinToken returns the permanent join token, after Open; "" when this replica does not have it.
func (s *ControllerService) JoinToken() string { return s.controller.Nodes.JoinToken() }

// Run serves until the context ends.
func (s *ControllerService) Run(ctx context.Context) error {
	defer s.logOutput.start(ctx)()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	handler, nodes, err := s.handlers() //nolint:contextcheck // requests have their own contexts
	if err != nil {
		return err
	}
	s.log.InfoContext(ctx, "controller started", "address", s.URL(), "registry", s.RegistryURL(),
		"metrics", s.MetricsURL(), "version", obs.FullVersion())
	warnExposed(ctx, s.log, s.ExposedAddresses())
	var wg sync.WaitGroup
	wg.Go(func() { tuneGC(ctx, s.authRefusals) })
	wg.Go(func() { s.license.Run(ctx) })
	wg.Go(func() { s.agentPackages.Run(ctx) })
	wg.Go(func() { s.apiTLS.run(ctx) })
	wg.Go(func() { s.access.runJobs(ctx) })
	if s.auditTrail != nil {
		wg.Go(func() { s.auditTrail.Run(ctx) })
	}
	errs := make(chan error, 6)
	start := func(run func(context.Context) error) {
		wg.Go(func() {
			errs <- run(ctx)
			cancel()
		})
	}
	start(s.controller.Run)
	start(s.run)
	start(s.awaitRestart)
	if dir := s.settings.String(config.BackupDir); dir != "" {
		start(s.periodicBackups(dir).Run)
	}
	start(func(ctx context.Context) error {
		return s.listener.serve(ctx, handler, s.settings.Duration(config.GracefulShutdown))
	})
	if s.nodePort != nil {
		start(func(ctx context.Context) error { return s.nodePort.run(ctx, nodes, s.settings) })
	}
	if s.registry != nil {
		start(s.registry.Run)
	}
	wg.Wait()
	flushAuditTrail(ctx, s.auditTrail, s.log)
	close(errs)
	for err := range errs {
		if err != nil && !errors.Is(err, context.Canceled) {
			return err
		}
	}
	return nil
}

// errRestart ends a controller whose store can be opened again only by a new process.
var errRestart = errors.New("the store must be reopened: restart the controller")

// awaitRestart waits until a store whose files could not be written can be opened again.
func (s *ControllerService) awaitRestart(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case cause := <-s.backend.RestartNeeded():
		s.log.WarnContext(ctx, "store writable again; restarting", "failure", cause)
		return fmt.Errorf("%w: %w", errRestart, cause)
	}
}

// handlers serve the API and, if enabled, the node interface.
func (s *ControllerService) handlers() (all, nodes http.Handler, err error) {
	o, err := s.restOptions()
	if err != nil {
		return nil, nil, err
	}
	if s.nodePort != nil {
		nodes, err = s.nodePort.handler(o, s.access)
	}
	all = controllerrest.Handler(o)
	if s.settings.Bool(config.AllowCORS) {
		all = rest.AllowCrossOrigin(all)
	}
	return s.withPortal(all), nodes, err
}

// restOptions are those of the controller's routes.
func (s *ControllerService) restOptions() (controllerrest.Options, error) {
	upstream, err := s.registryUpstream.transport()
	if err != nil {
		return controllerrest.Options{}, err
	}
	o := controllerrest.Options{
		Controller: s.controller, VMNamePrefix: s.settings.String(config.VMNamePrefix),
		RequestTimeout: s.settings.Duration(config.RequestTimeout), Logger: s.log, Meter: s.requestMeter,
		RegistryAddress: s.registryUpstream.address, RegistryTransport: upstream, Packages: s.agentPackages,
		Guard:      s.access.Guard(),
		AuthRoutes: s.access.Routes(), ListKeys: s.access.ListKeys(), Backup: s.store.Snapshot,
		Watches:    rest.NewConcurrencyLimit("watches", config.MaxWatches, s.settings.Int(config.MaxWatches)),
		LogStreams: rest.NewConcurrencyLimit("log streams", config.MaxLogStreams, s.settings.Int(config.MaxLogStreams)),
		Consoles:   rest.NewConcurrencyLimit("consoles", "", console.MaxOpen),
	}
	if s.registryTokens != nil {
		o.IssueRegistryToken = func(node *farm.Node, scope auth.NodeScope) (string, time.Duration) {
			return s.registryTokens.Issue(node.ID, node.KeyID, scope)
		}
	}
	return o, nil
}

// periodicBackups takes periodic backups into a directory.
func (s *ControllerService) periodicBackups(dir string) backup.PeriodicBackup {
	return backup.PeriodicBackup{
		Dir: dir, Interval: s.settings.Duration(config.BackupEvery), KeepCount: s.settings.Int(config.BackupKeep),
		Logger: s.log,
		Open: func(ctx context.Context) (io.ReadCloser, error) {
			stream, _, err := s.store.Snapshot(ctx)
			return stream, err
		},
	}
}

// Close releases everything that Open acquired.
func (s *ControllerService) Close() error {
	var errs []error
	if s.store != nil {
		errs = append(errs, s.store.Close())
	}
	if s.backend != nil {
		errs = append(errs, s.backend.Close())
	}
	if s.registry != nil {
		errs = append(errs, s.registry.Close())
	}
	if s.listener != nil {
		_ = s.listener.close() // closed already when Run served it
	}
	s.nodePort.close()
	return errors.Join(append(errs, s.close(), s.logOutput.close())...)
}

// historyRetention converts the setting to the option, where 0 means that nothing is kept.
func historyRetention(setting time.Duration) time.Duration {
	if setting == 0 {
		return -1
	}
	return setting
}
