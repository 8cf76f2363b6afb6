package cachejob

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/agent/datadir"
)

// jobFile is the content of the file: the unfinished cache jobs. The controller sends everything
// again to a node without it; it is stored so that pulls continue also while the controller is
// unavailable.
type jobFile struct {
	Node      string         `json:"node"`
	CacheJobs []api.CacheJob `json:"errands"`
}

// load reads the cache jobs of an earlier agent.
func (r *Runner) load() []api.CacheJob {
	if r.o.File == "" {
		return nil
	}
	raw, err := os.ReadFile(r.o.File)
	var b jobFile
	if err == nil {
		err = json.Unmarshal(raw, &b)
	}
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			r.o.Logger.Error("cache job file cannot be read; the controller sends its jobs again", "error",
				err)
		}
		return nil
	}
	if b.Node != r.o.Node {
		return nil
	}
	return b.CacheJobs[:min(len(b.CacheJobs), maxCacheJobs)]
}

// save writes the unfinished cache jobs. On a full disk it fails without harm: the controller sends
// everything again to the next agent.
func (r *Runner) save() {
	if r.o.File == "" {
		return
	}
	r.saving.Lock()
	defer r.saving.Unlock()
	b := jobFile{Node: r.o.Node, CacheJobs: []api.CacheJob{}}
	r.mu.Lock()
	for _, e := range r.entries {
		if !e.over() {
			b.CacheJobs = append(b.CacheJobs, e.order)
		}
	}
	r.mu.Unlock()
	slices.SortFunc(b.CacheJobs, func(x, y api.CacheJob) int { return strings.Compare(x.ID, y.ID) })
	raw, err := json.Marshal(b)
	if err == nil {
		err = datadir.WriteFile(r.o.File, raw)
	}
	if err != nil {
		r.o.Logger.Warn("writing the cache job file failed", "error", err)
	}
}
