// SPDX-License-Identifier: Apache-2.0
#include "lockstep/base/error.h"
#include "report/draw/palette.h"
#include "report/page/page.h"

namespace lockstep::report {
namespace {

constexpr const char* rules = R"css(
*{box-sizing:border-box}
body{margin:0;background:var(--page);color:var(--text);font:15px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,Helvetica,Arial,sans-serif}
main,header,footer{max-width:1240px;margin:0 auto;padding:0 16px}
header{padding-top:28px}
footer{padding-top:12px;padding-bottom:32px;color:var(--muted);font-size:13px}
h1{margin:0;font-size:26px;line-height:1.25;overflow-wrap:anywhere}
h2{margin:32px 0 12px;font-size:18px}
h3{margin:0;font-size:15px}
p{margin:6px 0}
a{color:inherit}
code,pre{font:12.5px/1.5 ui-monospace,SFMono-Regular,Menlo,Consolas,monospace}
code{overflow-wrap:anywhere}
.muted{color:var(--muted)}
.card{background:var(--card);border:1px solid var(--line);border-radius:10px;padding:14px 16px;min-width:0}
.grid{display:grid;gap:14px;grid-template-columns:repeat(auto-fill,minmax(min(100%,340px),1fr))}
@media(min-width:730px){.wide{grid-column:span 2}}
.tiles{display:grid;gap:10px;grid-template-columns:repeat(auto-fill,minmax(140px,1fr));margin-top:18px}
.tile b{display:block;font-size:22px;line-height:1.3;font-variant-numeric:tabular-nums}
.tile span{color:var(--muted);font-size:13px}
.badge{display:inline-block;margin-left:8px;padding:1px 9px;border-radius:99px;border:1px solid currentColor;font-size:13px;font-weight:500;vertical-align:middle;overflow-wrap:anywhere}
.good{color:var(--good)}.bad{color:var(--bad)}.warn{color:var(--warn)}
.verdict{margin-top:16px;border-left:4px solid currentColor}
.verdict>*{color:var(--text)}.verdict strong{color:inherit}
figure{margin:0}
figcaption{display:flex;flex-wrap:wrap;align-items:baseline;gap:2px 14px;margin-bottom:4px}
.legend{display:flex;flex-wrap:wrap;gap:2px 14px;margin:0;padding:0;list-style:none;font-size:13px;color:var(--muted)}
.swatch{display:inline-block;width:14px;height:4px;border-radius:2px;margin-right:6px;vertical-align:middle;background:currentColor}
.swatch.box{width:10px;height:10px}
.swatch.dashed{background:linear-gradient(90deg,currentColor 40%,transparent 40% 60%,currentColor 60%)}
.chart{position:relative}
.chart svg{display:block;width:100%;height:auto;overflow:visible;font-family:inherit;touch-action:pan-y}
.chart svg:focus-visible,button:focus-visible,summary:focus-visible,.scroll:focus-visible,canvas:focus-visible{outline:2px solid var(--accent);outline-offset:2px;border-radius:4px}
.tip{position:absolute;z-index:1;pointer-events:none;background:var(--card);border:1px solid var(--line);border-radius:8px;box-shadow:0 4px 14px rgb(0 0 0/.18);padding:6px 10px;font-size:12.5px;line-height:1.45;max-width:90%;font-variant-numeric:tabular-nums}
.tip div{white-space:nowrap;overflow:hidden;text-overflow:ellipsis}
.runs{position:sticky;top:0;z-index:2;display:flex;flex-wrap:wrap;gap:8px;margin:18px 0 0;padding:8px 0;background:var(--page)}
.runs button{font:inherit;font-size:13px;color:var(--text);background:var(--card);border:1px solid var(--line);border-radius:99px;padding:4px 12px;cursor:pointer;max-width:100%;overflow:hidden;text-overflow:ellipsis;white-space:nowrap}
.legend+.barname{margin-top:8px}
.runs button:disabled{cursor:default}
.runs button[aria-pressed=false]{opacity:.45;text-decoration:line-through}
.scroll{overflow-x:auto}
table{border-collapse:collapse;font-size:13.5px;font-variant-numeric:tabular-nums}
th,td{padding:5px 10px 5px 0;text-align:left;vertical-align:top;border-bottom:1px solid var(--line)}
thead th{color:var(--muted);font-weight:500;white-space:nowrap}
tbody tr:last-child>*{border-bottom:0}
td.n,th.n{text-align:right;white-space:nowrap}
.hash code{white-space:nowrap}
.name{min-width:9em;max-width:16em;overflow-wrap:anywhere}
.bar{display:flex;height:18px;border-radius:4px;overflow:hidden;margin:3px 0 12px}
.bar i{display:block;background:currentColor;min-width:0}
.shares{width:100%}.shares th,.shares td.n{width:1%;font-weight:400;white-space:nowrap}.shares td{vertical-align:middle}
.shares th{max-width:10em;overflow:hidden;text-overflow:ellipsis}
.meter{display:block;height:10px;border-radius:3px;background:currentColor;min-width:1px}
.barname{display:flex;justify-content:space-between;gap:12px;font-size:13.5px;overflow-wrap:anywhere}
.matrix{font-size:11px;margin-top:4px;width:100%}
.matrix th,.matrix td{border:0;padding:0}
.matrix td{min-width:22px;height:24px;text-align:center;vertical-align:middle;border:1px solid var(--card);border-radius:4px;background:rgb(var(--shade)/var(--v))}
.matrix td.hit{--shade:var(--hit)}.matrix td.miss{--shade:var(--miss)}
.matrix td.deep{color:var(--deep)}
.matrix tbody th{padding-right:6px;text-align:right;vertical-align:middle;font-weight:400;max-width:6.2em;overflow:hidden;text-overflow:ellipsis;white-space:nowrap}
.matrix thead th{height:1px;padding:0 0 6px;vertical-align:bottom;color:var(--text);font-weight:400}
.matrix thead th span{writing-mode:vertical-rl;transform:rotate(180deg);display:inline-block;max-height:9em;overflow:hidden;white-space:nowrap}
.samples{display:grid;gap:10px;grid-template-columns:repeat(auto-fill,minmax(96px,1fr));margin:0;padding:0;list-style:none}
.samples li{font-size:12.5px;line-height:1.35;overflow-wrap:anywhere}
.samples img{display:block;width:100%;max-width:128px;image-rendering:pixelated;border-radius:6px;margin-bottom:4px;border:1px solid var(--line)}
.scenes>ul{margin:0;padding:0;list-style:none}
.scenes>ul+ul{margin-top:10px}
.scenes figure{display:inline-block;margin:0 10px 8px 0;font-size:12.5px;color:var(--muted)}
.scenes img{display:block;max-width:100%;border-radius:6px;border:1px solid var(--line)}
.stage{height:min(70vh,520px);margin:8px 0;border:1px solid var(--line);border-radius:8px;background:var(--page)}
.stage canvas{display:block;width:100%;height:100%;touch-action:none;cursor:grab}
.choices{display:flex;flex-wrap:wrap;gap:8px 16px;align-items:center;font-size:13px;color:var(--muted)}
.choice{display:flex;flex-wrap:wrap;gap:4px}
.choice button{font:inherit;color:var(--text);background:var(--card);border:1px solid var(--line);border-radius:99px;padding:3px 11px;cursor:pointer}
.choice button[aria-pressed=true]{border-color:var(--accent);color:var(--accent)}
.confused{margin:0;padding-left:20px}
details{margin-top:10px}
summary{cursor:pointer;font-weight:600;overflow-wrap:anywhere}
details>.card,details>.grid{margin-top:10px}
pre{margin:0;overflow-x:auto}
[hidden]{display:none}
@media(max-width:420px){.card{padding:12px}.scroll>table:not(.matrix){font-size:12.5px}.scroll>table:not(.matrix) :is(th,td){padding-right:7px}}
@media print{.runs,.tip,.choices{display:none}body{background:none}.card{break-inside:avoid}}
)css";

// Colours that only the page has.
constexpr const char* light =
    ":root{color-scheme:light dark;--page:#f5f6f8;--card:#fff;--text:#1c2430;--muted:#5a6675;--line:#e1e5ea;"
    "--accent:#2563c9;--good:#1a7f4b;--bad:#c0283f;--warn:#946200;--hit:37 99 201;--miss:217 87 15;--deep:#fff}";
constexpr const char* dark =
    ":root{--page:#0d1117;--card:#161b22;--text:#e8ecf1;--muted:#9aa6b5;--line:#2a323d;"
    "--accent:#6ea8ff;--good:#4cc38a;--bad:#ff7a8f;--warn:#e5b94a;--hit:74 134 232;--miss:226 116 50;--deep:#fff}";

}  // namespace

std::string page_style() {
  return text(light, ink_rules(Theme::light), "@media(prefers-color-scheme:dark){", dark, ink_rules(Theme::dark), "}",
              rules);
}

}  // namespace lockstep::report
