package release

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/license"
)

// checkInterval is how often a Repository checks its directory.
const checkInterval = 2 * time.Second

// aliases are the names under which clients request the packages of macOS. If a file with that name
// exists it is served, otherwise the package itself.
var aliases = map[string]Platform{
	"AnkaAgent.pkg":    {"darwin", "amd64"},
	"AnkaAgentArm.pkg": {"darwin", "arm64"},
}

// Repository is a controller's directory of agent packages. It follows changes of the directory,
// which need not exist yet.
type Repository struct {
	dir string
	log *slog.Logger

	mu            sync.Mutex // guards the fields below
	packages      []api.AgentPackage
	keys          string
	digests       map[string]fileDigest // package -> digest of its file
	problem       string                // what is wrong with the directory; "" if nothing
	loggedProblem string                // the trouble that was logged last
	changed       chan struct{}         // has a value when the packages have changed
}

// fileStamp identifies the state of a file, to detect changes.
type fileStamp struct {
	modified time.Time
	size     int64
}

type fileDigest struct {
	fileStamp
	sha256 string
}

// NewRepository reads a directory. Run follows its changes.
func NewRepository(dir string, log *slog.Logger) *Repository {
	s := &Repository{dir: dir, log: log, digests: map[string]fileDigest{}, changed: make(chan struct{}, 1)}
	s.Refresh()
	return s
}

// Run follows the directory until ctx ends.
func (s *Repository) Run(ctx context.Context) {
	tick := time.NewTicker(checkInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			s.Refresh()
		}
	}
}

// Changed has a value when the packages have changed since it was last received.
func (s *Repository) Changed() <-chan struct{} { return s.changed }

// Packages returns the packages, in the order of Platforms.
func (s *Repository) Packages() []api.AgentPackage {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.packages)
}

// PackageFor returns the package for a platform.
func (s *Repository) PackageFor(system, arch string) (api.AgentPackage, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.packages {
		if p.OS == system && p.Arch == arch {
			return p, true
		}
	}
	return api.AgentPackage{}, false
}

// Keys returns the public keys that nodes receive when they join; "" for none.
func (s *Repository) Keys() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.keys
}

// Problem returns what an operator has to fix; "" for nothing.
func (s *Repository) Problem() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.problem
}

// MissingHint returns what to do when the package for a platform is missing.
func (s *Repository) MissingHint(system, arch string) string {
	if trouble := s.Problem(); trouble != "" {
		return trouble
	}
	return fmt.Sprintf(
		"Agent package %s not found: put it into %s on the controller's machine and sign it there (buildyard package "+
			"sign)",
		Platform{system, arch}.PackageFile(), s.dir)
}

// OpenPackage opens the file that a client requests by name, and returns its digest; "" when that is not
// known. A farm.CodeNotFound describes which file to add.
func (s *Repository) OpenPackage(name string) (f *os.File, digest string, err error) {
	if platform, alias := aliases[name]; alias {
		if f, err := os.Open(filepath.Join(s.dir, name)); err == nil {
			return f, "", nil
		}
		name = platform.PackageFile()
	}
	platform, known := PlatformOf(name)
	if !known {
		return nil, "", farm.Errorf(farm.CodeNotFound,
			"Agent package not found; names are buildnode-OS-ARCH.tar.gz with linux or darwin, amd64 or arm64")
	}
	p, ok := s.PackageFor(platform.OS, platform.Arch)
	if !ok {
		return nil, "", farm.Errorf(farm.CodeNotFound, "%s", s.MissingHint(platform.OS, platform.Arch))
	}
	if f, err = os.Open(filepath.Join(s.dir, name)); err != nil {
		return nil, "", farm.Errorf(farm.CodeNotFound, "%s", s.MissingHint(platform.OS, platform.Arch))
	}
	if st, err := f.Stat(); err != nil || st.Size() != p.Size {
		_ = f.Close()
		return nil, "", farm.Errorf(farm.CodeNotFound,
			"The agent package %s has changed since it was signed: sign it again (buildyard package sign)", name)
	}
	return f, p.SHA256, nil
}

// Refresh reads the changes in the directory.
func (s *Repository) Refresh() {
	list, keys, err := s.readPackages()
	trouble := ""
	if err != nil {
		trouble = fmt.Sprintf("The agent packages in %s cannot be offered: %v", s.dir, err)
	}
	s.mu.Lock()
	different := !slices.Equal(list, s.packages)
	s.packages, s.keys, s.problem = list, keys, trouble
	fresh := trouble != s.loggedProblem
	s.loggedProblem = trouble
	s.mu.Unlock()
	if fresh && trouble != "" {
		s.log.Warn("agent packages invalid", "alarm", trouble)
	}
	if !different {
		return
	}
	for _, p := range list {
		s.log.Info("agent package available", "package", p.Name, "version", p.Version)
	}
	select {
	case s.changed <- struct{}{}:
	default:
	}
}

// readPackages returns the packages whose files match their signed statements. Other packages do not affect
// them.
func (s *Repository) readPackages() (list []api.AgentPackage, keys string, err error) {
	signed, err := ReadManifest(s.dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, "", err
	}
	keys, err = s.readKeys()
	errs := []error{err}
	for _, platform := range Platforms {
		i := slices.IndexFunc(signed, func(p api.AgentPackage) bool { return p.Name == platform.PackageFile() })
		switch err := s.checkPackage(platform.PackageFile(), signed, i); {
		case err != nil:
			errs = append(errs, err)
		case i >= 0:
			list = append(list, signed[i])
		}
	}
	return list, keys, errors.Join(errs...)
}

func (s *Repository) readKeys() (string, error) {
	keys, err := PublicKeys(s.dir)
	if err != nil || keys == "" {
		return "", err
	}
	if _, err := license.ParseTrustedKeys([]byte(keys)); err != nil {
		return "", fmt.Errorf("%s: %w", KeysFile, err)
	}
	return keys, nil
}

// checkPackage returns the problem of one package; i is its index in the manifest, or -1.
func (s *Repository) checkPackage(name string, signed []api.AgentPackage, i int) error {
	st, err := os.Stat(filepath.Join(s.dir, name))
	switch {
	case errors.Is(err, fs.ErrNotExist) && i < 0:
		return nil
	case err != nil:
		return err
	case i < 0:
		return fmt.Errorf("%s is not signed: sign it (buildyard package sign)", name)
	}
	now := fileStamp{st.ModTime(), st.Size()}
	s.mu.Lock()
	known := s.digests[name]
	s.mu.Unlock()
	if known.fileStamp != now {
		f, err := os.Open(filepath.Join(s.dir, name))
		if err != nil {
			return err
		}
		defer func() { _ = f.Close() }()
		known.fileStamp = now
		if _, known.sha256, err = Digest(f); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		s.mu.Lock()
		s.digests[name] = known
		s.mu.Unlock()
	}
	if p := signed[i]; known.sha256 != p.SHA256 || now.size != p.Size {
		return fmt.Errorf("%s does not match its signature: sign it again (buildyard package sign)", name)
	}
	return nil
}
