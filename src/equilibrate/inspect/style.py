"""How the report of an inspection looks, beside what every page of `paper.html` has."""

STYLE = """
.plots { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 21rem), 1fr));
  gap: 1rem 2rem; margin: 1rem 0; align-items: start; }
svg.plot { width: 100%; height: auto; display: block; font: 11px system-ui, sans-serif; }
svg.plot text { fill: #333; } svg.plot .title { font-weight: 600; font-size: 12px; fill: #1a1a1a; }
svg.plot .grid { stroke: #e4e4e4; } svg.plot .axis { stroke: #777; }
svg.plot .hit { stroke-width: 12; stroke-opacity: 0; pointer-events: stroke; }
svg.plot .mark:hover { opacity: .6; }
.key span { white-space: nowrap; margin-right: 1.2rem; } .key i { display: inline-block;
  width: .8rem; height: .8rem; border-radius: .4rem; margin-right: .35rem; }
summary { cursor: pointer; } td { column-gap: .6rem; }
"""
