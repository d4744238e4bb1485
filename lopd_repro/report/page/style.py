"""The page's style sheet: one column of sections, navigation beside it or, on a phone, above."""

STYLE = """
:root { color-scheme: light; --ink: #1d2126; --soft: #59626d; --line: #d9dde2; --link: #0b4f8a;
  --ground: #fff; --tint: #f4f6f8; }
* { box-sizing: border-box; }
html { scroll-behavior: smooth; -webkit-text-size-adjust: 100%; }
body { font: 16px/1.55 system-ui, sans-serif; color: var(--ink); background: var(--ground);
  margin: 0; }
a { color: var(--link); }
h1 { font-size: 1.6rem; line-height: 1.25; margin: 0 0 .6rem; }
h2 { font-size: 1.25rem; line-height: 1.3; margin: 0 0 .7rem; }
h3 { font-size: 1.05rem; margin: 1.6rem 0 .4rem; }
p, ul, dl { margin: .5rem 0; max-width: 46rem; }
ul { padding-left: 1.2rem; } li { margin: .25rem 0; overflow-wrap: anywhere; }
ul.plain { list-style: none; padding: 0; margin: 0; }
code { font: .86em/1.4 ui-monospace, monospace; background: var(--tint); padding: .05rem .25rem;
  border-radius: .2rem; overflow-wrap: anywhere; }
.page { display: grid; grid-template-columns: 11rem minmax(0, 1fr); gap: 0 2rem;
  max-width: 86rem; margin: 0 auto; padding: 1.5rem; }
.side { position: sticky; top: 1.5rem; align-self: start; max-height: calc(100vh - 3rem);
  overflow-y: auto; font-size: .92rem; }
.side ul, .menu ul { list-style: none; padding: 0; margin: 0; }
.side a, .menu a { display: block; padding: .22rem .5rem; text-decoration: none;
  border-radius: .3rem; }
.side a:hover, .menu a:hover { background: var(--tint); }
.menu { display: none; }
section { padding: 1.4rem 0 1rem; border-top: 1px solid var(--line); scroll-margin-top: .5rem; }
.notice { border-left: 4px solid #b45309; background: #fef3e2; padding: .5rem .8rem; }
.absent { color: var(--soft); background: var(--tint); padding: .5rem .8rem; border-radius: .3rem; }
.files { font-size: .85rem; color: var(--soft); }
.fine { font-size: .85rem; color: var(--soft); }
.key { font-weight: 650; }
.glance { padding-left: 1.2rem; }
.facts { display: grid; gap: .5rem 2rem; max-width: none;
  grid-template-columns: repeat(auto-fit, minmax(15rem, 1fr)); }
.facts .wide { grid-column: 1 / -1; }
dt { font-size: .8rem; color: var(--soft); } dd { margin: 0; }
/* A shade at the right edge where a table goes on; the first layer moves and covers it. */
.scroll { overflow-x: auto; max-width: 100%; margin: .5rem 0; background:
  linear-gradient(to left, var(--ground) 40%, transparent) right / 2.5rem 100% no-repeat local,
  linear-gradient(to left, #0002, transparent) right / .8rem 100% no-repeat scroll; }
.scroll:focus-visible, summary:focus-visible, a:focus-visible { outline: 2px solid var(--link);
  outline-offset: 2px; }
/* Whole pixels, since cells that stay in view are drawn apart and would miss the lines by one. */
table { border-collapse: separate; border-spacing: 0; font-size: 13.5px; line-height: 18px;
  font-variant-numeric: tabular-nums; }
th, td { padding: 5px 7px; border-bottom: 1px solid var(--line); vertical-align: top;
  text-align: right; white-space: nowrap; font-weight: 400; }
thead th { font-weight: 600; vertical-align: bottom; border-bottom: 2px solid #9aa3ad;
  white-space: normal; overflow-wrap: break-word; min-width: 4rem; max-width: 12rem; }
.text { text-align: left; }
table.wrap td.text { white-space: normal; min-width: 7rem; max-width: 34rem; }
table.wrap td.long { min-width: 16rem; }
tr > :first-child { position: sticky; left: 0; background: var(--ground); z-index: 1; }
tbody th { font-weight: 500; text-align: left; }
tr.band th { background: var(--tint); font-weight: 600; position: static; }
tr.band span { position: sticky; left: .6rem; }
small { display: block; font-size: 12px; line-height: 16px; font-weight: 400; color: var(--soft); }
.paper { color: #7a4a07; }
.empty { color: #8a929b; }
.higher { font-weight: 650; color: #14602b; } .lower { font-weight: 650; color: #96231b; }
.chip { display: inline-block; border-radius: .3rem; padding: 0 .45rem; font-size: 12.5px;
  line-height: 18px; font-weight: 600; }
.contradiction { background: #f9d4d0; } .discrepancy, .warning { background: #fde9c4; }
.caution { background: #e6e1f5; } .info { background: #e3edf6; } .ok { background: #dcefdc; }
.ledger { list-style: none; padding: 0; max-width: none; font-size: .92rem; }
.ledger > li { display: grid; grid-template-columns: 2.8rem minmax(0, 1fr) 18rem; gap: 0 .8rem;
  border-top: 1px solid var(--line); padding: .45rem 0; margin: 0; }
.verdicts > span { display: block; } .verdicts details { margin: .2rem 0 0; }
.verdicts summary { font-weight: 400; padding: 0; }
.verdict { border-left: 4px solid #9aa3ad; padding: .1rem .8rem; max-width: 46rem; }
figure { margin: .6rem 0; } figure img { display: block; height: auto; }
figcaption { font-size: .88rem; color: var(--soft); max-width: 46rem; }
details { margin: .5rem 0; } summary { cursor: pointer; font-weight: 600; padding: .15rem 0; }
details details { margin-left: 1rem; } details details summary { font-weight: 500; }
footer { border-top: 1px solid var(--line); color: var(--soft); font-size: .85rem;
  padding: 1rem 0; }
@media (max-width: 60rem) {
  .page { display: block; padding: 0 1rem 1rem; }
  .side { display: none; }
  .menu { display: block; position: sticky; top: 0; z-index: 3; margin: 0 -1rem 1rem;
    background: var(--ground); border-bottom: 1px solid var(--line); }
  .menu > summary { padding: .6rem 1rem; }
  .menu ul { padding: 0 .5rem .6rem; max-height: 70vh; overflow-y: auto; max-width: none; }
  .menu a { padding: .45rem .5rem; }
  .menu li { margin: 0; }
  section { scroll-margin-top: 3.2rem; }
  tbody tr:not(.band) > :first-child { white-space: normal; min-width: 5.5rem; max-width: 9rem; }
  .ledger > li { grid-template-columns: 2.8rem minmax(0, 1fr); }
  .verdicts { grid-column: 2; margin-top: .25rem; }
}
@media print {
  @page { size: A4 landscape; margin: 12mm; }
  .side, .menu { display: none; }
  .page { display: block; padding: 0; }
  .scroll { overflow: visible; background: none; }
  tr, figure, .notice { break-inside: avoid; } h2, h3, summary { break-after: avoid; }
  table { font-size: .72rem; } th, td { padding: .2rem .35rem; }
  tr > :first-child { position: static; }
}
"""
