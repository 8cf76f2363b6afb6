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
	pattern      string // as http.ServeMux takes it
	templateName string // of the template of its form
	title        string
	buildForm    func(v *visit) (any, error)
	perform      func(v *visit) (actionResult, error)
}

// actionResult is the result of an action.
type actionResult struct {
	ResultPath    string // the page that shows the result; "": the results are shown
	Back          string // the page that requested it, where results are shown
	Items         []itemResult
	Live          *liveResults // the states of what was changed; nil: they are not shown
	OneTimeSecret *secret      // shown once, and stored nowhere
	Form          any          // the form again, with its errors; nil: there are none
	Invalid       bool
}

// secret is a value that only the user who requested it may keep.
type secret struct{ Name, Text string }

// itemResult is the result for one item of an action.
type itemResult struct {
	Name, Path string
	Reason     string // the error; "": it succeeded
	Said       string // the result
}

// Failed returns the number of items that failed.
func (o actionResult) Failed() (n int) {
	for _, r := range o.Items {
		if r.Reason != "" {
			n++
		}
	}
	return n
}

const (
	maxForm  = 4 << 20          // bytes
	formTime = 30 * time.Second // in which a form must be received
)

// formHandler returns the handler that shows the form of an action.
func (p *portal) formHandler(d action) http.Handler {
	return p.pageHandler(page{templateName: d.templateName, title: d.title, buildView: d.buildForm})
}

// actionHandler returns the handler that performs an action. If every item succeeds, the browser is
// redirected to the page that shows it; otherwise every result is shown.
func (p *portal) actionHandler(d action) http.Handler {
	g := page{templateName: "done", title: d.title}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Body = http.MaxBytesReader(w, r.Body, maxForm)
		conn := http.NewResponseController(w)
		_ = conn.SetReadDeadline(time.Now().Add(formTime)) // the sender is not authenticated yet
		if err := r.ParseForm(); err != nil {
			p.showError(w, r, g, formUnreadable(err))
			return
		}
		_ = conn.SetReadDeadline(time.Time{})
		v, err := p.newVisit(r)
		var out actionResult
		if err == nil && p.opts.LoginRequired { // else each of many would fail for it
			if _, asked := v.Status(v); errors.Is(asked, client.ErrUnauthenticated) {
				err = asked
			}
		}
		if err == nil {
			v.query = mergeValues(r.URL.Query(), r.PostForm)
			out, err = d.perform(v)
		}
		switch {
		case err != nil:
			p.showError(w, r, g, err)
		case out.Form != nil:
			status := http.StatusOK
			if out.Invalid {
				status = http.StatusBadRequest
			}
			p.showView(w, r, status, d.templateName, p.newView(v, g, d.title, out.Form))
		case out.ResultPath != "":
			redirectTo(w, r, out.ResultPath)
		default:
			status := http.StatusOK
			if out.Failed() > 0 {
				status = http.StatusConflict
			}
			shown := p.newView(v, g, d.title, out)
			if out.Live != nil {
				shown.ChangesPath, shown.PartsRefresh = p.changesPath(resultKinds[out.Live.Kind].topics), true
			}
			p.showView(w, r, status, g.templateName, shown)
		}
	})
}

// formUnreadable is the error of a form that cannot be read.
func formUnreadable(err error) error {
	if _, large := errors.AsType[*http.MaxBytesError](err); large {
		return &client.Error{Code: client.ErrTooLarge, Message: "The form exceeds " + bytesize.Format(maxForm) +
			". Nothing was changed."}
	}
	return formError("The form cannot be read: " + err.Error() + ". Nothing was changed.")
}

// redirectTo leads the browser to a page of the portal.
func redirectTo(w http.ResponseWriter, r *http.Request, path string) {
	if isRefresh(r) {
		w.Header().Set("HX-Redirect", path)
		w.WriteHeader(http.StatusNoContent)
		return
	}
	http.Redirect(w, r, path, http.StatusSeeOther)
}

// mergeValues returns the values of an address and a form; those of the form take precedence.
func mergeValues(query, form url.Values) url.Values {
	all := url.Values{}
	for _, values := range []url.Values{query, form} {
		maps.Copy(all, values)
	}
	return all
}
