package portal

import (
	"net/http"
	"slices"
	"strings"
)

// Which columns a list has is chosen in its menu, by the parameter cols of its address. The choice is kept in a cookie
// of the list, so that later visits have it without the parameter, and without scripts.

const (
	columnParam   = "cols"
	columnCookie  = "columns-" // with the first part of the path of the list
	columnsKept   = 365 * 24 * 60 * 60
	noMoreColumns = "none" // a choice of the fixed columns alone
	maxCookie     = 512
)

// columnMenu is the columns of a list that can be chosen.
type columnMenu struct {
	Path, Filter, Sort string
	Choices            []column // with Shown set
}

// chooseColumns returns the columns that the visitor has chosen of all of a list, which of them are shown, and the menu
// to choose others. A choice in the address is kept from then on.
func (v *visit) chooseColumns(all []column) (shown []column, has map[string]bool, menu columnMenu) {
	chosen := v.chosenColumns()
	isKnown := func(id string) bool {
		return id == noMoreColumns || id != "" && slices.ContainsFunc(all, func(c column) bool { return c.ID == id })
	}
	if !slices.ContainsFunc(chosen, isKnown) { // of a link that is not of this list, or of an older version
		chosen = nil
	}
	has = map[string]bool{}
	menu = columnMenu{Path: v.request.URL.Path, Filter: v.query.Get("q"), Sort: v.query.Get("sort")}
	for _, c := range all {
		c.Shown = c.ID == "" || chosen == nil && !c.IsExtra || slices.Contains(chosen, c.ID)
		if c.ID != "" {
			menu.Choices = append(menu.Choices, c)
			has[c.ID] = c.Shown
		}
		if c.Shown {
			shown = append(shown, c)
		}
	}
	// A page that refreshes may be older than the choice.
	if chosen != nil && v.query.Has(columnParam) && !isRefresh(v.request) {
		v.keepColumns(menu.Choices)
	}
	return shown, has, menu
}

// chosenColumns returns the IDs of the address or the cookie; nil: nothing was chosen.
func (v *visit) chosenColumns() []string {
	if v.query.Has(columnParam) {
		return v.query[columnParam]
	}
	cookie, err := v.request.Cookie(v.columnCookie())
	if err != nil || len(cookie.Value) > maxCookie {
		return nil
	}
	return strings.Split(cookie.Value, ".")
}

func (v *visit) columnCookie() string {
	return columnCookie + strings.Trim(firstPathPart(v.request.URL.Path), "/")
}

// keepColumns has the response set the cookie.
func (v *visit) keepColumns(all []column) {
	ids := []string{noMoreColumns}
	for _, c := range all {
		if c.Shown {
			ids = append(ids, c.ID)
		}
	}
	c := &http.Cookie{
		Name: v.columnCookie(), Value: strings.Join(ids, "."), Path: firstPathPart(v.request.URL.Path),
		MaxAge: columnsKept, HttpOnly: true, SameSite: http.SameSiteStrictMode, Secure: true,
	}
	c.Secure = v.request.TLS != nil // a browser keeps no Secure cookie of plain HTTP
	v.setCookies = append(v.setCookies, c)
}
