package main

import (
	"context"
	"fmt"
	"net/http"
	"strings"
)

// pages and openPages are what a page of another site has the browser of an operator do.
var (
	pages     = family{name: "pages of other sites", site: arrangement{nodes: 4}, attacks: pageAttacks}
	openPages = family{
		name: "pages of other sites without authentication", site: arrangement{noAuth: true, nodes: 4},
		attacks: pageAttacks,
	}
)

var pageAttacks = []attack{
	{"cross-site requests", crossSite, false},
	{"DNS rebinding", rebinding, false},
}

// forgeries are what a browser sends with a request that a page of another site makes.
var forgeries = [][]string{
	{"Origin", "https://evil.test", "Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "cors"},
	{"Origin", "https://evil.test", "Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "no-cors"},
	{"Origin", "https://evil.test"}, // an old browser
	{"Origin", "null"},              // a file, or a frame without an origin
	{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "no-cors"},
	// Pages of other ports of this machine. They may have the browser read, and get nothing of the answer.
	{"Sec-Fetch-Site", "same-site", "Sec-Fetch-Mode", "no-cors"},
	{"Origin", "http://127.0.0.1:1", "Sec-Fetch-Site", "same-site", "Sec-Fetch-Mode", "cors"},
}

// sisters is how many of the forgeries are of pages of the same site.
const sisters = 2

// browser returns the operator's browser: logged in at a service as root where authentication is on.
func (s *site) browser(ctx context.Context, address string) (c caller, header []string, err error) {
	c = s.attacker()
	if s.noAuth {
		return c, nil, nil
	}
	a, err := c.send(ctx, "POST "+address+"/login", `{"token":"`+s.root+`"}`)
	if err != nil {
		return c, nil, err
	}
	for _, cookie := range (&http.Response{Header: a.header}).Cookies() {
		header = append(header, "Cookie", cookie.Name+"="+cookie.Value)
	}
	if len(header) == 0 {
		return c, nil, fmt.Errorf("the log-in is answered %d %.200s", a.code, a.body)
	}
	return c, header, nil
}

// crossSite has a page of another site change and read what it can, with the cookies of the browser.
func crossSite(ctx context.Context, s *site, o *outcome) {
	start := fmt.Sprintf(`{"vmid":%q,"group_id":%q}`, s.b, s.empty)
	for _, side := range []struct {
		address string
		what    [][2]string
	}{
		{s.controller, [][2]string{
			{"POST /api/v1/vm", start},
			{"DELETE /api/v1/registry/vm?id=" + s.a, ""},
			{"POST /api/v1/group", `{"name":"evil"}`},
			{"GET /api/v1/vm", ""},
			{"GET /api/v1/vm/watch", ""},
			{"POST /logout", ""},
		}},
		{s.registry, [][2]string{
			{"DELETE /registry/vm?id=" + s.a, ""},
			{"POST /registry/pause", `{"seconds":1}`},
			{"POST /log", `{"service":"evil","content":"x"}`},
			{"GET /registry/v2/vm", ""},
			{"PUT /registry/files/evil", "x"},
		}},
	} {
		c, cookies, err := s.browser(ctx, side.address)
		if err != nil {
			o.check(err)
			continue
		}
		for _, what := range side.what {
			method, path, _ := strings.Cut(what[0], " ")
			tries := forgeries
			if method == http.MethodGet {
				tries = tries[:len(tries)-sisters]
			}
			for _, forged := range tries {
				a, err := c.send(ctx, method+" "+side.address+path, what[1],
					append(append([]string{"Content-Type", "text/plain"}, cookies...), forged...)...)
				o.want(fmt.Sprint(what[0], " with ", forged), a, err, http.StatusForbidden, http.StatusUnauthorized)
			}
		}
		// The browser's own page continues to work.
		if a, err := c.send(ctx, "GET "+side.address+"/readyz", "",
			append(cookies, "Sec-Fetch-Site", "same-origin")...); err != nil || a.code != http.StatusOK {
			o.fault("the own page is answered %d %v", a.code, err)
		}
	}
	s.untouched(ctx, o, s.a, s.b)
}

// rebinding has a page call the services by its own host name, which resolves to loopback: it has
// the same origin then.
func rebinding(ctx context.Context, s *site, o *outcome) {
	for _, side := range [][]string{
		{
			s.controller, "GET /api/v1/vm", "GET /api/v1/status", "POST /api/v1/group", "GET /login", "GET /livez",
			"GET //api/v1/vm",
		},
		{s.registry, "GET /registry/v2/vm", "GET /registry/status", "POST /log", "GET /livez"},
		{s.metrics, "GET /metrics"},
	} {
		c := s.attacker()
		for _, what := range side[1:] {
			method, path, _ := strings.Cut(what, " ")
			for _, host := range []string{
				"evil.test", "evil.test:8090", "127.0.0.1.evil.test", "localhost.evil.test", "evil.test.",
			} {
				a, err := c.send(ctx, method+" "+side[0]+path, "", "Host", host, "Origin", "http://"+host,
					"Sec-Fetch-Site", "same-origin")
				o.want(what+" at "+host, a, err, http.StatusForbidden)
			}
		}
	}
}
