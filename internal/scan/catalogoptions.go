package scan

import (
	"runtime"
	"strings"

	"github.com/buildyard/buildyard/internal/scan/catalog"
	"github.com/buildyard/buildyard/internal/scan/catalog/cpe"
	"github.com/buildyard/buildyard/internal/scan/catalog/extractors"
)

// imageWorkers is how many goroutines per processor read a volume of an image: while one decodes a
// frame of a compressed disk, others wait for the same frame.
const imageWorkers = 4

// catalogOptions returns how a volume is cataloged.
func (v *volume) catalogOptions(o Options) catalog.Options {
	out := catalog.Options{
		Extractors: extractors.All(), CPEs: cpe.ForPackage, Limits: o.Limits, Development: o.Development,
	}
	if o.IncludeMacOS {
		out.Extractors = append(out.Extractors, extractors.System()...)
	}
	if o.Exclude != nil {
		mount := strings.TrimSuffix(v.MountPath, "/") + "/"
		out.Exclude = func(path string) bool { return o.Exclude.Match(mount + path) }
	}
	if v.Format != dirFormat {
		out.Workers = imageWorkers * runtime.GOMAXPROCS(0)
	}
	if o.Progress != nil {
		name := v.Name
		out.Progress = func(files, packages int) { o.Progress(name, files, packages) }
	}
	return out
}

// excludesVolume reports whether a volume that is not the main one is left out, by its path or a directory above it.
func (o *Options) excludesVolume(mount string) bool { return mount != "/" && o.excludes(mount) }

// excludes reports whether a path or a directory above it is left out.
func (o *Options) excludes(path string) bool {
	if o.Exclude == nil {
		return false
	}
	for end := len(path); end > 0; end = strings.LastIndexByte(path[:end], '/') {
		if o.Exclude.Match(path[:end]) {
			return true
		}
	}
	return false
}

// Complete sets the fields that follow from kind, name and version, for a package outside of a
// scan.
func Complete(p catalog.Package) catalog.Package {
	p = catalog.Merge([]catalog.Package{p})[0]
	p.CPEs = cpe.ForPackage(p)
	return p
}
