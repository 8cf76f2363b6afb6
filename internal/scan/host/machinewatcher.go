package host

import (
	"context"
	"os"
	"path/filepath"

	"github.com/buildyard/buildyard/internal/scan/watch"
)

// machineWatcher is the watcher of this machine.
type machineWatcher struct{ *watch.Watcher }

var _ Watcher = machineWatcher{}

// newMachineWatcher creates it.
func newMachineWatcher(o WatchOptions) (Watcher, error) {
	w, err := watch.Open(watch.Options{
		Roots: []string{o.Root}, WantsFile: o.WantsFile, Exclude: o.Exclude, PackageDirs: watchedDirs(o.Root),
		StatePath: o.StatePath, Log: o.Log,
	})
	if err != nil {
		return nil, err
	}
	return machineWatcher{w}, nil
}

// Run reports changes until ctx ends.
func (m machineWatcher) Run(ctx context.Context, take func([]Change)) error {
	what := map[watch.ChangeKind]ChangeKind{
		watch.FileChanged: FileChanged, watch.DirChanged: DirChanged, watch.Removed: Removed,
	}
	return m.Watcher.Run(ctx, func(list []watch.Change) {
		out := make([]Change, len(list))
		for i, c := range list {
			out[i] = Change{c.Path, what[c.Kind]}
		}
		take(out)
	})
}

// Mounts returns the file systems and how each is watched.
func (m machineWatcher) Mounts() []Mount {
	var out []Mount
	for _, f := range m.Watcher.Mounts() {
		out = append(out, Mount{Path: f.Path, Type: f.Type, Method: string(f.Method), Reason: f.Reason})
	}
	return out
}

// sharedDirs are the package directories common to all users of a machine.
var sharedDirs = []string{
	"/usr/lib/node_modules", "/usr/local/lib", "/usr/lib/python3", "/usr/lib/ruby", "/usr/share/nodejs",
	"/var/lib/gems", "/usr/local/bin",
	"/opt", "/usr/local/Cellar", "/usr/local/Caskroom", "/Applications", "/Library/Ruby", "/Library/Python", "/srv",
}

// userDirs are those of each user, relative to the home directory.
var userDirs = []string{
	"go/bin", "go/pkg/mod", ".cargo", ".npm", ".nvm", ".gem", ".rbenv", ".local", ".pyenv", ".m2/repository",
	".gradle/caches", ".cocoapods",
	"Applications", "Library/Python", "src", "work", "Projects", "Developer",
}

// watchedDirs returns the directories that are watched where not everything can be. A directory that
// real-time scanning is restricted to is one itself.
func watchedDirs(root string) []string {
	if root != "/" {
		return []string{root}
	}
	out := append([]string(nil), sharedDirs...)
	homes := []string{"/root"}
	if home, err := os.UserHomeDir(); err == nil {
		homes = append(homes, home)
	}
	for _, pattern := range []string{"/home/*", "/Users/*"} {
		found, _ := filepath.Glob(pattern) // the pattern is valid
		homes = append(homes, found...)
	}
	for _, h := range homes {
		for _, f := range userDirs {
			out = append(out, filepath.Join(h, f))
		}
	}
	return out
}
