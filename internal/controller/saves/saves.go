package saves

import (
	"context"
	"math"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/controller/record"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/store"
)

// DefaultMax is the default of the number of requests.
const DefaultMax = 20000

const (
	maxListedOutput = 4 << 10 // bytes of a script's output that an element of the list shows
	typeBadScript   = "base64.CorruptInputError"
)

// Options is what Saves need of other parts. All fields are set.
type Options struct {
	Registry  string // where nodes push to
	Max       int    // requests, beyond which the oldest ended ones are removed
	Instances Instances
	Templates Templates
	Contents  Contents
	// StopFallback makes a save with suspend on a node that cannot suspend the guest one that shuts it
	// down; otherwise it is refused.
	StopFallback bool

	// Admit checks the limits of a caller for one more request of some bytes; release is called when it
	// is written.
	Admit func(caller string, bytes int) (release func(), err error)
	// Response returns what an accepted request writes so that a repeated one is recognized.
	Response func(ctx context.Context, answer any) ([]store.Change, error)
	// Surplus returns which failed requests are too many.
	Surplus func() func(*farm.SaveRequest) bool
	// From returns the moment from which a time of retention that began at t counts.
	From func(t time.Time) time.Time
}

// Instances gives tasks to instances.
type Instances interface {
	Latest(ctx context.Context, id string) (*farm.Instance, error)
	BeginTask(
		ctx context.Context, id string, event farm.InstanceEvent, task *farm.NodeTask, with ...store.Change,
	) error
}

// Templates has the templates of the registry, as far as the caller of a context may save into them.
type Templates interface {
	ForSave(ctx context.Context, id string) (api.TemplateDetail, error)
	ForSaveRevert(ctx context.Context, id string, denied error) (api.TemplateDetail, error)
}

// Contents has the scripts of saves and their output.
type Contents interface {
	StoreSaveScript(ctx context.Context, request string, text []byte) error
	WithOutput(s *farm.SaveRequest, limit int) *farm.SaveRequest
	PruneChunks(ctx context.Context, w *record.Term, now time.Time) error
}

// Saves are the requests to save of a cloud.
type Saves struct {
	db record.DB
	o  Options
}

// New returns the requests in a database.
func New(db record.DB, o Options) *Saves { return &Saves{db, o} }

// Request requests to save an instance as a version of a template. The caller has checked types,
// lengths and combinations.
type Request struct {
	// The destination of the save; with TemplateID "" the template NewTemplateName is created, with
	// both they must agree.
	farm.SaveOptions
	Script    []byte // as decoded
	BadScript error  // the script cannot be decoded: the request ends immediately, without its description
	Caller    string // whose limits it counts against
	NoRevert  error  // why the caller may not revert where the registry leaves that to the controller; nil: they may
}

// Create accepts a save and returns the id of its request once that is durable.
func (s *Saves) Create(ctx context.Context, r Request) (string, error) {
	checked := checkedRequest{Request: r}
	for _, check := range checks {
		if err := check.run(ctx, s, &checked); err != nil {
			return "", err
		}
	}
	req := s.newRequest(checked)
	release, err := s.o.Admit(r.Caller, record.EncodedSize(req))
	if err != nil {
		return "", err
	}
	defer release()

	changes, err := s.o.Response(ctx, api.SaveImageAnswer{RequestID: req.ID})
	if err != nil {
		return "", err
	}
	if r.BadScript != nil {
		req = req.AfterFailure(typeBadScript, r.BadScript.Error(), req.Created)
		return req.ID,
			s.db.Store.Commit(ctx, append(changes, store.Put(s.db.Tables.Saves, req.ID, req, store.IfAbsent))...)
	}
	if len(r.Script) > 0 {
		if err := s.o.Contents.StoreSaveScript(ctx, req.ID, r.Script); err != nil {
			return "", err
		}
	}
	changes = append(changes, store.Put(s.db.Tables.Saves, req.ID, req, store.IfAbsent))
	task := &farm.NodeTask{ID: req.ID, Kind: farm.TaskSave}
	return req.ID, s.o.Instances.BeginTask(ctx, checked.inst.ID, farm.SaveBegun, task, changes...)
}

// newRequest returns the record of a request that has passed its checks.
func (s *Saves) newRequest(checked checkedRequest) *farm.SaveRequest {
	now := s.db.Now()
	req := &farm.SaveRequest{
		ID: record.NewID(), Status: farm.SavePending, Request: checked.destination(), Registry: s.o.Registry,
		NodeID: checked.inst.NodeID, Caller: checked.Caller, Created: now, Updated: now,
	}
	req.Request.Scripted = len(checked.Script) > 0 || checked.BadScript != nil
	if checked.inst.VM != nil {
		req.VMUUID = checked.inst.VM.UUID
	}
	if checked.BadScript != nil {
		req.Request.Description = ""
	}
	return req
}

// Get returns a request with the output of its script; farm.CodeNotFound when there is none.
func (s *Saves) Get(ctx context.Context, id string) (*farm.SaveRequest, error) {
	req, _, err := record.Lookup(ctx, s.db.Tables.Saves, id)
	if err != nil {
		return nil, err
	}
	return s.o.Contents.WithOutput(req, record.MaxSaveOutput), nil
}

// List returns at most limit requests, oldest first, with ids after one and accepted by match; of the
// output of their scripts only the end. A nil match accepts all.
func (s *Saves) List(after string, limit int, match func(*farm.SaveRequest) bool) []*farm.SaveRequest {
	var list []*farm.SaveRequest
	for _, req := range s.db.Tables.Saves.Range(after, math.MaxInt) {
		if len(list) == limit {
			break
		}
		if match == nil || match(req) {
			list = append(list, s.o.Contents.WithOutput(req, maxListedOutput))
		}
	}
	return list
}

// End ends a request whose instance, nil when it does not exist, no longer works on it. One that ended
// already stays as it is.
func (s *Saves) End(ctx context.Context, w store.Writer, id string, inst *farm.Instance) error {
	_, err := store.Update(ctx, w, s.db.Tables.Saves, id, func(req *farm.SaveRequest) (*farm.SaveRequest, error) {
		return req.AfterInstance(inst, s.db.Now()), nil
	})
	return err
}
