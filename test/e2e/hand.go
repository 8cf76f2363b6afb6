package main

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// steps runs one function after the other, and returns the first error.
func steps(all ...func() error) error {
	for i, step := range all {
		if err := step(); err != nil {
			return fmt.Errorf("step %d: %w", i+1, err)
		}
	}
	return nil
}

// to opens a page of the open cloud.
func (p *page) to(path string) func() error {
	return func() error { return p.tab.Navigate(p, p.open.Controller+path) }
}

// toGuarded opens a page of the cloud where one has to log in.
func (p *page) toGuarded(path string) func() error {
	return func() error { return p.tab.Navigate(p, p.guarded.Controller+path) }
}

// pathOf is a JavaScript function that returns a CSS selector of one element.
const pathOf = `(e) => {
	const steps = [];
	for (; e.parentElement && !e.getAttribute("id"); e = e.parentElement) steps.unshift(":nth-child(" + ([...e.parentElement.children].indexOf(e) + 1) + ")");
	const id = e.getAttribute("id"); // a field named id hides the property of its form
	return [id ? "#" + CSS.escape(id) : e.localName, ...steps].join(" > ");
}`

// click clicks the first visible element that a CSS selector finds. An element of a closed menu is clicked after its
// menu was opened.
func (p *page) click(selector string) func() error {
	path := fmt.Sprintf(`(() => {
		const all = [...document.querySelectorAll(%q)];
		const e = all.find((e) => e.checkVisibility()) ?? all.find((e) => e.closest("details")?.checkVisibility()) ?? all[0];
		if (!e) return [];
		const closed = e.closest("details:not([open])"), menu = closed?.querySelector("summary");
		return (menu && !menu.contains(e) ? [menu, e] : [e]).map(%s);
	})()`, selector, pathOf)
	return func() error {
		if err := p.ready(selector); err != nil {
			return err
		}
		return fresh(func() error {
			all, err := evaluate[[]string](p, path)
			if err == nil && len(all) == 0 {
				err = fmt.Errorf("nothing is %s", selector)
			}
			for _, at := range all {
				if err == nil {
					err = p.tab.Click(p, at)
				}
			}
			return err
		})
	}
}

// pointAway moves the pointer to where nothing is: rows do not move while it is over them.
func (p *page) pointAway() error { return p.tab.PointAway(p) }

// chip waits until a chip of a filter has a number.
func (p *page) chip(name string, n int) func() error {
	return p.holds(fmt.Sprintf(`[...document.querySelectorAll("a.chip")].some((c) => c.textContent.trim() === "%s %d")`,
		name, n))
}

// ready waits until the page is there as a whole, and a selector finds something.
func (p *page) ready(selector string) error {
	return p.holds(fmt.Sprintf(`document.readyState === "complete" && !!document.querySelector(%q)`, selector))()
}

// fresh does something with an element, once more where the page has put another in its place
// between the look for it and the hand on it.
func fresh(do func() error) (err error) {
	for range 3 {
		if err = do(); err == nil || !strings.Contains(strings.ToLower(err.Error()), "could not find node") {
			return err
		}
	}
	return err
}

// fill types a text into a field, in place of what is in it.
func (p *page) fill(selector, text string) func() error {
	return func() error {
		if err := p.ready(selector); err != nil {
			return err
		}
		return fresh(func() error {
			return errors.Join(p.tab.Run(p, fmt.Sprintf(`document.querySelector(%q).value = ""`, selector)),
				p.tab.Type(p, selector, text))
		})
	}
}

// refusal is the answer that the next steps ask for.
func (p *page) refusal(code int) func() error {
	return func() error {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.refusals = append(p.refusals, code)
		return nil
	}
}

// without records that the controller will be unavailable.
func (p *page) without() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.absent = true
	return nil
}

// keys presses keys where the focus is.
func (p *page) keys(text string) func() error {
	return func() error {
		if err := p.ready("body"); err != nil {
			return err
		}
		return p.tab.Type(p, "", text)
	}
}

// there waits until a selector finds something.
func (p *page) there(selector string) func() error {
	return p.holds(fmt.Sprintf("!!document.querySelector(%q)", selector))
}

// see waits until texts can be read on the page.
func (p *page) see(texts ...string) func() error {
	return func() error {
		for _, text := range texts {
			if err := p.holds(fmt.Sprintf("document.body.innerText.toLowerCase().includes(%q)",
				strings.ToLower(text)))(); err != nil {
				return err
			}
		}
		return nil
	}
}

// gone waits until a text can no longer be read on the page.
func (p *page) gone(text string) func() error {
	return p.holds(fmt.Sprintf("!document.body.innerText.toLowerCase().includes(%q)", strings.ToLower(text)))
}

// closed waits until no dialog is open.
func (p *page) closed() error { return p.holds(`!document.querySelector("dialog[open]")`)() }

// at waits until the address of the page ends so.
func (p *page) at(path string) func() error {
	return p.holds(fmt.Sprintf("(location.pathname + location.search).endsWith(%q)", path))
}

// live waits until the page receives change notifications.
func (p *page) live() func() error { return p.there(`[data-live-is][data-is="on"]`) }

// holds waits until an expression of JavaScript is true.
func (p *page) holds(expression string) func() error {
	return func() error {
		for end := time.Now().Add(waitTime); ; {
			ok, err := evaluate[bool](p, expression)
			if ok && err == nil {
				return nil
			}
			if p.Err() != nil {
				return errors.Join(p.Err(), err)
			}
			if time.Now().After(end) {
				return errors.Join(fmt.Errorf("waited for %s", expression), err)
			}
			time.Sleep(50 * time.Millisecond)
		}
	}
}

// picture is shot as a step.
func (p *page) picture(name string) func() error { return func() error { return p.shot(name) } }
