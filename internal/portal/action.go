package portal

import (
	"errors"
	"maps"
	"net/http"
	"net/url"
	"time"

	"github.com/buildyard/buildyard/client"
	"github.com/buildyard/buildyard/internal/bytesize"
)

// action is one row of the table of changes. GET shows a form that describes the effect; POST
// performs the change.
type action struct {
	path  string // as http.ServeMux takes it
	name  string // of the template of its form
	title string
	ask   func(v *visit) (any, error)
	do    func(v *visit) (actionResult, error)
}

// actionResult is the result of an action.
type actionResult struct {
	To    string // the page that shows the result; "": the results are shown
	Back  string // the page that requested it, where results are shown
	Items []itemResult
	Once  *secret // shown once, and stored nowhere
	Again any     // the form again, with its errors; nil: there are none
	Wrong bool
}

// secret is a value that only the user who requested it may keep.
type secret struct{ Name, Text string }

// itemResult is the result for one item of an action.
type itemResult struct {
	Name, Path string
	Why        string // the error; "": it succeeded
	Said       string // the result
}

// Failed returns the number of items that failed.
func (o actionResult) Failed() (n int) {
	for _, r := range o.Items {
		if r.Why != "" {
			n++
		}
	}
	return n
}

const (
	maxForm  = 4 << 20          // bytes
	formTime = 30 * time.Second // in which a form must be received
)

// ask returns the handler that shows the form of an action.
func (p *portal) ask(d action) http.Handler {
	return p.serve(page{name: d.name, title: d.title, load: d.ask})
}

// act returns the handler that performs an action. If every item succeeds, the browser is
// redirected to the page that shows it; otherwise every result is shown.
func (p *portal) act(d action) http.Handler {
	g := page{name: "done", title: d.title}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Body = http.MaxBytesReader(w, r.Body, maxForm)
		conn := http.NewResponseController(w)
		_ = conn.SetReadDeadline(time.Now().Add(formTime)) // the sender is not authenticated yet
		if err := r.ParseForm(); err != nil {
			p.fail(w, r, g, unreadable(err))
			return
		}
		_ = conn.SetReadDeadline(time.Time{})
		v, err := p.visit(r)
		var out actionResult
		if err == nil && p.o.Guarded { // else each of many would fail for it
			if _, asked := v.Status(v); errors.Is(asked, client.ErrUnauthenticated) {
				err = asked
			}
		}
		if err == nil {
			v.q = merged(r.URL.Query(), r.PostForm)
			out, err = d.do(v)
		}
		switch {
		case err != nil:
			p.fail(w, r, g, err)
		case out.Again != nil:
			status := http.StatusOK
			if out.Wrong {
				status = http.StatusBadRequest
			}
			p.show(w, r, status, d.name, p.view(v, g, d.title, out.Again))
		case out.To != "":
			goTo(w, r, out.To)
		default:
			status := http.StatusOK
			if out.Failed() > 0 {
				status = http.StatusConflict
			}
			p.show(w, r, status, g.name, p.view(v, g, d.title, out))
		}
	})
}

// unreadable is the error of a form that cannot be read.
func unreadable(err error) error {
	if _, large := errors.AsType[*http.MaxBytesError](err); large {
		return &client.Error{Code: client.ErrTooLarge, Message: "The form exceeds " + bytesize.Format(maxForm) +
			". Nothing was changed."}
	}
	return invalid("The form cannot be read: " + err.Error() + ". Nothing was changed.")
}

// goTo leads the browser to a page of the portal.
func goTo(w http.ResponseWriter, r *http.Request, path string) {
	if isRefresh(r) {
		w.Header().Set("HX-Redirect", path)
		w.WriteHeader(http.StatusNoContent)
		return
	}
	http.Redirect(w, r, path, http.StatusSeeOther)
}

// merged returns the values of an address and a form; those of the form take precedence.
func merged(query, form url.Values) url.Values {
	all := url.Values{}
	for _, values := range []url.Values{query, form} {
		maps.Copy(all, values)
	}
	return all
}
